/* The verdict on a pair of learners, or on a group, in words, from the evidence of either being better. */

import { put, write } from "./dom.js";
import { count, moment } from "./format.js";

const MOST = 3; // pairs that are named in the summary of a group

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** An amount of evidence, given as its log10, as one would say it. */
export function odds(log) {
  if (log >= 6) return `10${String(Math.floor(log)).replace(/\d/g, (digit) => RAISED[digit])}`;
  return log > -3 ? count(Number((10 ** log).toPrecision(2))) : "0";
}

/** How sure the evidence makes, in per cent, rounded down: 1 - 2 / evidence, as two hypotheses are tested. */
function certainty(log) {
  const doubt = 200 * 10 ** -log;
  return doubt < 0.01 ? "over 99.99\u00a0%" : `${Math.floor((100 - doubt) * 100) / 100}\u00a0%`;
}

const sinceWords = (clock, events) =>
  clock === null ? `event ${count(events)}` : `${moment(clock)} (event ${count(events)})`;

/** What to say about a group without events. */
const nothingYet = (name) => ({
  state: "none",
  verdict: "Nothing is compared yet.",
  more: ` Send events to /v1/groups/${name}/update: they go to each learner. What its learners get otherwise is not compared.`,
});

/** The verdict on a group in few words: {verdict, more, state}, from the tests of all its pairs, on so many events.
 * `aucOf` gives the AUC that stands above it, of a learner's own window, or null: where these point the other way, that
 * is said. */
export function summaryOf(name, events, tests, alpha, aucOf = () => null) {
  if (events === 0) return nothingYet(name);
  const difference = (a, b) => (aucOf(a) === null || aucOf(b) === null ? null : aucOf(a) - aucOf(b));
  if (tests.length === 1) {
    const [test] = tests;
    return verdictOf(test, alpha, difference(test.a, test.b), "in the windows above");
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
    const least = certainty(Math.min(...wins.map(({ log }) => log)));
    const { other, by } = contradicted(wins, difference);
    const late = by > 0 ? `: in the windows above its AUC is behind ${other}'s by ${by}.` : ".";
    return {
      state: "decided",
      verdict: `${best} is better than each of the others:`,
      more: ` ${least} sure since ${sinceWords(last.clock, last.events)}; keep watching${late}`,
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
        "and not yet which learner is best." +
        (by > 0 ? ` In the windows above ${better}'s AUC is behind ${other}'s by ${by}.` : ""),
    };
  }
  const { a, b, evidence } = tests.reduce((nearest, other) => (strongest(other) > strongest(nearest) ? other : nearest));
  return {
    state: "open",
    verdict: `None of ${count(tests.length)} pairs is decided.`,
    more:
      ` Keep watching: the nearest is ${a} or ${b}, evidence ${odds(strongest({ evidence }))} to 1; ` +
      `${odds(decides)} to 1 decides.`,
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

/** Write a verdict into an element of two: its first words stand out. */
export function writeVerdict(item, { verdict, more, state }) {
  write(item.firstChild, verdict);
  write(item.lastChild, more);
  put(item, "data-state", state);
}

/** The verdict on a pair in words: {verdict, more, state}. A verdict is on all that was compared: where the
 * `difference` of a and b in the window, or `where` else, points the other way, that is said. */
function verdictOf(
  { a, b, verdict, evidence, since_clock: clock, since_events: events },
  alpha,
  difference,
  where = "in the window",
) {
  const decides = Math.log10(2 / alpha);
  const [lead, log] = evidence.a_better >= evidence.b_better ? [a, evidence.a_better] : [b, evidence.b_better];
  if (verdict === null) {
    const leaning = log > 0.5 ? `it leans to ${lead}, ` : "";
    return {
      state: "open",
      verdict: `${a} or ${b}: not decided.`,
      more: ` Keep watching: ${leaning}evidence ${odds(log)} to 1; ${odds(decides)} to 1 decides.`,
    };
  }
  const [better, other, present] = verdict === "a" ? [a, b, evidence.a_better] : [b, a, evidence.b_better];
  const since = sinceWords(clock, events);
  const behind = ((verdict === "a" ? -1 : 1) * (difference ?? 0)).toFixed(4);
  const late = behind > 0 ? `: ${where} its AUC is behind by ${behind}.` : ".";
  if (present >= decides) {
    return {
      state: "decided",
      verdict: `${better} is better than ${other}:`,
      more: ` ${certainty(present)} sure since ${since}; keep watching${late}`,
    };
  }
  return {
    state: "was",
    verdict: `${better} was better than ${other}:`,
    more: ` decided at ${since}, but the evidence is ${odds(present)} to 1 by now; keep watching${late}`,
  };
}
