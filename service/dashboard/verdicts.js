/* The verdict on a pair of learners, or on a group, in words, from the evidence of either being better. */

import { el, put, write } from "./dom.js";
import { count, moment } from "./format.js";

const MOST = 3; // pairs that are named in the summary of a group

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** An amount of evidence, given as its log10, as one would say it. */
export function odds(log) {
  if (log >= 10) return "over 10¹⁰";
  if (log >= 6) return `10${RAISED[Math.floor(log)]}`;
  return log > -3 ? count(Number((10 ** log).toPrecision(2))) : "0";
}

/** Evidence beside what decides; both are given as their log10. */
const beside = (log, decides) => `evidence ${odds(log)} to 1; ${odds(decides)} to 1 decides.`;

const sinceWords = (clock, events) =>
  clock === null ? `event ${count(events)}` : `${moment(clock)} (event ${count(events)})`;

/** What to say about a group without events. */
const nothingYet = (name) => ({
  state: "none",
  verdict: "Nothing is compared yet.",
  more: ` Send events to /v1/groups/${name}/update: they go to each learner. What its learners get otherwise is not compared.`,
  now: "",
});

/** The verdict on a group in few words: {verdict, more, now, state}, from the tests of all its pairs, on so many events.
 * `aucOf` gives the AUC that stands above it, of a learner's own window, or null: where these point the other way, `now`
 * says so. */
export function summaryOf(name, events, tests, alpha, aucOf = () => null) {
  if (events === 0) return nothingYet(name);
  const difference = (a, b) => (aucOf(a) === null || aucOf(b) === null ? null : aucOf(a) - aucOf(b));
  if (tests.length === 1) {
    const [test] = tests;
    return verdictOf(test, alpha, difference(test.a, test.b), "In the windows above");
  }
  const decides = Math.log10(2 / alpha);
  const decided = tests
    .filter(({ verdict }) => verdict !== null)
    .map(({ a, b, verdict, evidence, since_clock: clock, since_events: events }) => ({
      ...(verdict === "a"
        ? { better: a, other: b, log: evidence.a_better }
        : { better: b, other: a, log: evidence.b_better }),
      clock,
      events,
    }))
    .filter(({ log }) => log >= decides);
  const others = new Set(tests.flatMap(({ a, b }) => [a, b])).size - 1;
  const best = decided.find(({ better }) => decided.filter((pair) => pair.better === better).length === others)?.better;
  if (best !== undefined) {
    const wins = decided.filter(({ better }) => better === best);
    const last = wins.reduce((latest, other) => (other.events > latest.events ? other : latest));
    const least = Math.min(...wins.map(({ log }) => log));
    const { other, by } = contradicted(wins, difference);
    return {
      state: "decided",
      verdict: `${best} is better than each of the others:`,
      more: ` ${beside(least, decides)} Decided at ${sinceWords(last.clock, last.events)}; keep watching.`,
      now: by > 0 ? `In the windows above its AUC is behind ${other}'s by ${by}.` : "",
    };
  }
  if (decided.length > 0) {
    const sentences = decided.slice(0, MOST).map(({ better, other }) => `${better} is better than ${other}`);
    const { better, other, by } = contradicted(decided.slice(0, MOST), difference);
    return {
      state: "open",
      verdict: `${sentences.join("; ")}${decided.length > MOST ? "; …" : "."}`,
      more:
        ` ${count(decided.length)} of ${count(tests.length)} pairs ${decided.length === 1 ? "is" : "are"} decided, ` +
        "and not yet which learner is best.",
      now: by > 0 ? `In the windows above ${better}'s AUC is behind ${other}'s by ${by}.` : "",
    };
  }
  const { a, b, evidence } = tests.reduce((nearest, other) => (strongest(other) > strongest(nearest) ? other : nearest));
  return {
    state: "open",
    verdict: `None of ${count(tests.length)} pairs is decided.`,
    more: ` Keep watching: the nearest is ${a} or ${b}, ${beside(strongest({ evidence }), decides)}`,
    now: "",
  };
}

/** Of decided pairs {better, other} the one that the shown metrics contradict most, and `by` how much ("0.0000": none). */
const contradicted = (pairs, difference) =>
  pairs
    .map((pair) => ({ ...pair, by: (difference(pair.other, pair.better) ?? 0).toFixed(4) }))
    .reduce((most, another) => (Number(another.by) > Number(most.by) ? another : most));

const strongest = ({ evidence }) => Math.max(evidence.a_better, evidence.b_better);

/** The verdicts on all pairs of a group, each as `verdictOf` has it, with a key; `differences` are those of the window. */
export function verdictsOf(name, events, tests, alpha, differences) {
  if (events === 0) return [{ key: "", ...nothingYet(name) }];
  return tests.map((test, i) => ({
    key: `${test.a} ${test.b}`,
    ...verdictOf(test, alpha, differences[i].difference),
  }));
}

/** The elements that a verdict is written into: its first words stand out, and how it is now has a line of its own. */
export const verdictParts = () => [el("strong"), el("span"), el("small")];

/** Write a verdict into an element with `verdictParts`. */
export function writeVerdict(item, { verdict, more, now, state }) {
  const [first, second, third] = item.children;
  write(first, verdict);
  write(second, more);
  write(third, now);
  put(item, "data-state", state);
}

/** The verdict on a pair in words: {verdict, more, now, state}. A verdict is on all that was compared: where the
 * `difference` of a and b in the window, or `where` else, points the other way, `now` says so. */
function verdictOf(
  { a, b, verdict, evidence, since_clock: clock, since_events: events },
  alpha,
  difference,
  where = "In the window",
) {
  const decides = Math.log10(2 / alpha);
  const [lead, log] = evidence.a_better >= evidence.b_better ? [a, evidence.a_better] : [b, evidence.b_better];
  if (verdict === null) {
    const leaning = log > 0.5 ? `it leans to ${lead}, ` : "";
    return {
      state: "open",
      verdict: `${a} or ${b}: not decided.`,
      more: ` Keep watching: ${leaning}${beside(log, decides)}`,
      now: "",
    };
  }
  const [better, other, present] = verdict === "a" ? [a, b, evidence.a_better] : [b, a, evidence.b_better];
  const since = sinceWords(clock, events);
  const behind = ((verdict === "a" ? -1 : 1) * (difference ?? 0)).toFixed(4);
  const now = behind > 0 ? `${where} its AUC is behind by ${behind}.` : "";
  if (present >= decides) {
    return {
      state: "decided",
      verdict: `${better} is better than ${other}:`,
      more: ` ${beside(present, decides)} Decided at ${since}; keep watching.`,
      now,
    };
  }
  return {
    state: "was",
    verdict: `${better} was better than ${other}:`,
    more: ` decided at ${since}, but the evidence is ${odds(present)} to 1 by now; keep watching.`,
    now,
  };
}
