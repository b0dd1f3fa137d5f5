"""Known results of the papers: (task, method) -> number. Other cells have none.

The papers' standard deviations are not known either.
"""

from __future__ import annotations

__all__ = ["CBR3", "CBR5", "LOAM2", "LOAM4", "NLAUC2", "NPSVOR3"]

Figures = dict[tuple[str, str], float]

# Khalid, Ray, Chitsaz. Confidence-Weighted Bipartite Ranking. ADMA 2016. AUC of CBR with FIFO buffers
CBR3: Figures = {
    (task, "CBR-FIFO"): auc
    for task, auc in {
        "heart [1]": 0.909,
        "diabetes [-1]": 0.707,
        "australian [1]": 0.889,
        "german [2]": 0.780,
        "ionosphere [-1]": 0.951,
        "svmguide3 [1]": 0.764,
        "segment [1-3]": 0.903,
        "vehicle [1]": 0.846,
        "magic04 [1]": 0.801,
        "spambase [1]": 0.942,
        "covtype [2]": 0.835,
        "cod-rna [1]": 0.984,
    }.items()
}
CBR5: Figures = {("farm-ads [1]", "CBR-diag"): 0.961}

# Zhu, Zhai, Ye. A Linear Method for Online AUC Maximization. Journal of Computer Research and Development 2018. AUC
LOAM2: Figures = {
    ("vehicle [1]", "LOAM_ILSC"): 0.8487,
    ("vehicle [1]", "LOAM_Ada"): 0.7845,
    ("svmguide3 [1]", "LOAM_ILSC"): 0.7908,
    ("svmguide3 [1]", "LOAM_Ada"): 0.7556,
    ("diabetic [1]", "LOAM_ILSC"): 0.7960,
    ("faults [7]", "LOAM_ILSC"): 0.7685,
    ("satimage [4]", "LOAM_ILSC"): 0.7569,
    ("wilt [1]", "LOAM_ILSC"): 0.9719,
    ("eeg_eye [1]", "LOAM_ILSC"): 0.6099,
}
LOAM4: Figures = {("farm-ads [1]", "LOAM_Ada"): 0.9556}

# Khalid, Ray, Chitsaz. Scalable Nonlinear AUC Maximization Methods. ECML PKDD 2018. AUC
NLAUC2: Figures = {
    ("spambase [1]", "NBAUC"): 0.9804,
    ("magic04 [1]", "NBAUC"): 0.9306,
    ("usps [0-4]", "NBAUC"): 0.9924,
    ("ijcnn1 [1]", "NBAUC"): 0.9957,
}

# Shi, Wang, Shen, Niu. A Novel Large-scale Ordinal Regression Model. MAE
NPSVOR3: Figures = {
    ("treebank_npsvor", "NPSVOR"): 0.827,
    ("treebank_npsvor", "RedSVM"): 0.803,
    ("treebank_npsvor", "SVC"): 0.937,
    ("treebank_npsvor", "SVR"): 0.823,
}
