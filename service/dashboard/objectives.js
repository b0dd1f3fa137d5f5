/* What each objective of a threshold does, and when one chooses it: docs/reference/thresholds.md in short. */

export const OBJECTIVES = {
  f1: "F1, by half of the best that was seen in stages. For F where the share of positives falls.",
  "f1-window": "The largest F1 over the recent events. For F on a steady stream: the safest.",
  "f1-ofo": "Half of the F1 that it has reached so far. Nothing to set; it never forgets.",
  fbeta: "The largest F-beta over the recent events. Where recall counts beta times as much as precision.",
  jaccard: "The largest Jaccard index (positives found, of all that are positive or alerts) over the recent events.",
  precision: "The lowest threshold whose alerts are right as often as the target says. Where each has to be worth it.",
  recall: "The highest threshold that finds as many of the positives as the target says. Where misses hurt.",
  fpr: "Calls no more of the negatives positive than the target says. Where good customers must not be bothered.",
  cost: "The least expected cost of errors. Where errors have a price; probabilities have to be right.",
  budget: "So many alerts per unit of time, or a share of all events. Where reviewers have so many hours.",
  optroc: "The largest accuracy over the recent events. Where both errors count the same.",
  fixed: "An alert from this probability on. Where the threshold is set elsewhere.",
};
