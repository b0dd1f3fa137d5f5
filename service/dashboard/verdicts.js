/* The verdict on a pair of learners in words, from the evidence of either being better. */

import { count, moment } from "./format.js";

/** An amount of evidence, given as its log10, as one would say it. */
export const odds = (log) =>
  log >= 6 ? `10^${Math.floor(log)}` : log > -3 ? count(Number((10 ** log).toPrecision(2))) : "0";

/** How sure the evidence makes, in per cent, rounded down: 1 - 2 / evidence, as two hypotheses are tested. */
function certainty(log) {
  const doubt = 200 * 10 ** -log;
  return doubt < 0.01 ? "over 99.99 %" : `${Math.floor((100 - doubt) * 100) / 100} %`;
}

/** The verdict on a pair in words: {verdict, more, state}. */
export function verdictOf({ a, b, verdict, evidence, since_clock: clock, since_events: events }, alpha) {
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
  const since = clock === null ? `event ${count(events)}` : `${moment(clock)} (event ${count(events)})`;
  if (present >= decides) {
    return {
      state: "decided",
      verdict: `${better} is better than ${other}: ${certainty(present)} since ${since};`,
      more: " keep watching.",
    };
  }
  return {
    state: "was",
    verdict: `${better} was better than ${other}: decided at ${since},`,
    more: ` but the evidence is ${odds(present)} to 1 by now; keep watching.`,
  };
}
