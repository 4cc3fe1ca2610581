// Objectives: losses of pairs or groups of answers, of the token losses of a sequence.
//
// A sequence holds documents, one after the other: a prompt and an answer each, whose tokens have
// labels. Documents come in pairs (2k, 2k + 1) or alone. S_d is the sum of -token_loss over the
// labels of document d, the log-probability of its answer; R_d is that of the reference model.
//
//   dpo     pairs: chosen, rejected. h = (S_c - S_r) - (R_c - R_r).
//           sigmoid  -(1 - e) log s(b h) - e log s(-b h)            arXiv:2305.18290
//           robust   (-(1 - e) log s(b h) + e log s(-b h)) / (1 - 2e)   arXiv:2403.00409
//           ipo      (h' - 1 / (2 b))^2, h' of means over tokens    arXiv:2310.12036
//           hinge    max(0, 1 - b h)                                arXiv:2305.10425
//   orpo    pairs. -mean(log p of chosen) - b log s(odds), odds = logit(chosen) - logit(rejected),
//           logit(d) = m - log(1 - e^m) of the mean m                arXiv:2403.07691
//   kto     pairs: an answer, and the answer of another line after the same prompt. z, a constant,
//           is the mean of S - R of the latter over the sequence, at least 0. With given wanted:
//           w (1 - s(b (S - R - z))), else u (1 - s(b (z - S + R)))  arXiv:2402.01306
//   grpo    each document alone: of token t with ratio r = exp(log p - old) and advantage A
//           -min(r A, clip(r, 1 - low, 1 + high) A) + kl (exp(q - log p) - (q - log p) - 1),
//           q the reference's. Over the answer: the mean (grpo), the sum over a fixed length
//           (dr_grpo), or each token for itself (bnpo)               arXiv:2402.03300, 2503.20783
//   reward  pairs. The last token of each document has a label and -token_loss is the score there,
//           so S is the document's score: -log s(S_c - S_r)          Bradley and Terry 1952,
//                                                                    arXiv:1909.08593
//
// s is the logistic function, e the label smoothing, b beta. A loss is at the row of the document's
// first label (bnpo: of the token); units are 1 there and -1 elsewhere.
#ifndef OP_OBJECTIVE_H
#define OP_OBJECTIVE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum op_objective_kind {
    OBJECTIVE_NONE, // the mean of the token losses
    OBJECTIVE_DPO,
    OBJECTIVE_ORPO,
    OBJECTIVE_KTO,
    OBJECTIVE_GRPO,
    OBJECTIVE_REWARD,
    OBJECTIVE_KIND_COUNT
} op_objective_kind;
// DPO: the loss. GRPO: what an answer's tokens are divided by.
typedef enum op_objective_form {
    FORM_SIGMOID,
    FORM_IPO,
    FORM_ROBUST,
    FORM_HINGE,
    FORM_GRPO,
    FORM_BNPO,
    FORM_DR_GRPO
} op_objective_form;

typedef struct op_objective_attrs {
    int32_t kind, form; // op_objective_kind, op_objective_form
    float beta, smoothing;
    float wanted, unwanted; // KTO: weights w and u
    float low, high, kl;    // GRPO
    float length;           // DR_GRPO
} op_objective_attrs;

// The columns of `given`, of all rows of a sequence, also where cp cuts it. Of the first two
// objectives' pairs: the first column at a document's first row.
enum {
    GIVEN_REFERENCE, // R_d at the document's first row; GRPO: q of each token, at its label's row
    GIVEN_OLD,       // GRPO: log-probability of each token when it was drawn
    GIVEN_ADVANTAGE, // GRPO: of each token; KTO: above 0 if the answer is wanted
    GIVEN_LABEL,     // 1: the row has a label
    GIVEN_COLUMNS
};
// The columns of `measures`: sums over rows and sequences of which a step reports ratios. Pairs
// have theirs at the row of the unit, GRPO at each label.
enum {
    MEASURE_FIRST,   // DPO, ORPO: reward b (S - R) of chosen; KTO: of a wanted answer; GRPO: the KL
    MEASURE_SECOND,  // reward of rejected; KTO: of one that is not wanted; GRPO: 1 where clipped
    MEASURE_CORRECT, // pairs: 1 if the first is above the second, 1/2 if equal; KTO: 1 if wanted;
                     // GRPO: |ratio - 1|
    MEASURE_COUNT,   // 1
    MEASURE_COLUMNS
};

// One sequence of T rows, in double; strides of given and measures are their columns.
typedef struct op_objective_sequence {
    int64_t rows;
    const double *token_loss, *given;
    const int32_t *documents;
    double *losses, *slopes, *measures; // all are written
    int32_t *units;
} op_objective_sequence;
void op_objective_compute(const op_objective_attrs *attrs, const op_objective_sequence *s);
// Bytes of a scratch that holds all arrays of a sequence.
int64_t op_objective_bytes(int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
