"""Metrics of each value of a segment field, over the labelled events of the window.

Scores and decisions are those from before the label was learnt; of a late label those that were served. Shares have
Wilson's interval, the AUC DeLong's, as everywhere. What rests on positives is undefined for segments with few of them:
their values would be noise, and the eye goes to the extreme ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.metrics import WindowColumns, auc_with_interval, share_interval
from learners.segments.segment_ring import BEFORE, MISSING_VALUE, OTHER, SLOTS, SegmentRing

__all__ = ["SegmentReview"]

Document = dict[str, Any]


@dataclass(frozen=True)
class SegmentReview:
    """What the metrics of one field follow from, copied at one moment."""

    field: str
    columns: WindowColumns
    codes: NDArray[np.uint8]  # (n,) of the ring
    names: list[str | None]  # of its slots

    @classmethod
    def of(cls, ring: SegmentRing, field: str, columns: WindowColumns) -> SegmentReview:
        """Copy what a review of a declared field reads. O(window)."""
        names = ring.names[ring.fields.index(field)].copy()
        return cls(field, columns, ring.window(field, columns.numbers), names)

    def document(self, limit: int, least_positives: int) -> Document:
        """Return the metrics of the `limit` largest values as JSON, and of all other events.

        AUC, precision and label rate need `least_positives` positives. O(n log n) for n events of the window.
        """
        undefined: dict[str, str] = {}
        counts = np.bincount(self.codes, minlength=256)
        used = [slot for slot in range(SLOTS) if counts[slot]]
        largest = sorted(used, key=lambda slot: (-int(counts[slot]), str(self.names[slot])))
        listed, pooled = largest[:limit], [*largest[limit:], OTHER]

        def figures(selection: NDArray[np.bool_], scope: str) -> Document:
            return self._figures(selection, scope, least_positives, undefined)

        return {
            "by": self.field,
            "minimum_positives": least_positives,
            "segments": [
                {"value": self.names[slot], **figures(self.codes == slot, f"segments/{i}")}
                for i, slot in enumerate(listed)
            ],
            "other": figures(np.isin(self.codes, pooled), "other"),
            "missing": figures(self.codes == MISSING_VALUE, "missing"),
            "all": figures(np.ones(len(self.codes), dtype=np.bool_), "all"),
            "pooled_values": len(largest) - len(listed),
            "unrecorded": int(counts[BEFORE]),
            "undefined": undefined,
        }

    def _figures(
        self, selection: NDArray[np.bool_], scope: str, least_positives: int, undefined: dict[str, str]
    ) -> Document:
        """Compute the metrics of the chosen events; `undefined` collects by JSON pointer why some are null."""
        labels, alerts = self.columns.labels[selection] == 1, self.columns.decisions[selection] == 1
        n, positives, alarmed = len(labels), int(labels.sum()), int(alerts.sum())
        few = f"fewer than {least_positives} positives" if positives < least_positives else None
        scores = self.columns.scores[selection]
        auc, interval = (None, None) if few else auc_with_interval(np.sort(scores[~labels]), np.sort(scores[labels]))
        shares = {
            "precision": (int((labels & alerts).sum()), alarmed, few or "no alerts"),
            "label_rate": (positives, n, few or "no labelled events"),
            "alert_rate": (alarmed, n, None if n else "no labelled events"),
        }
        out: Document = {
            "events": n,
            "class_counts": {"negative": n - positives, "positive": positives},
            "alerts": alarmed,
            "auc": auc,
            "auc_interval": interval,
        }
        if auc is None:
            undefined[f"/{scope}/auc"] = few or ("no negatives" if positives else "no positives")
        for name, (part, total, reason) in shares.items():
            hidden = not total or (few is not None and name != "alert_rate")
            out[name] = None if hidden else part / total
            out[f"{name}_interval"] = None if hidden else share_interval(part, total)
            if hidden:
                undefined[f"/{scope}/{name}"] = str(reason)
        return out
