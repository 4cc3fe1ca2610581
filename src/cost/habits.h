// Habits of other software: how its steps differ from the plan as it is.
//
// A plan, its prices and its simulation know the eight numbers of a cost_profile. Other differences
// of a published run (operations that are not fused, collectives that take another route,
// additional bytes) are data: one table of named habits, each with a value that changes nothing. A
// profile of the catalogue sets some of them. Three files know the habits: cost/habits.c for
// prices, sim/habits.c for a step's host and sums, predict/habits.c for bytes.
//
// To add a habit: a row here, and a line in one of these files.
#ifndef COST_HABITS_H
#define COST_HABITS_H

#include "cost/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

// REAL(field, key of the catalogue, scale of its unit, least, most, value that changes nothing,
//      help)
// COUNT(field, most, help), which changes nothing at 0
// FLAG(field, value that changes nothing, help)
// clang-format off
#define COST_HABITS(REAL, COUNT, FLAG)                                                             \
    /* Operations. */                                                                              \
    REAL(attention_half, attention_half, 1, 0, 1e6, 0,                                             \
         "positions at which attention has half of its speed; 0: the device's entry")              \
    REAL(pointwise, pointwise, 1, 0.01, 100, 1,                                                    \
         "bytes that element-wise operations move, relative to the plan's; below 1: fused")        \
    REAL(eager_pointwise, eager_pointwise, 1, 0, 100, 0,                                           \
         "the same, of RMSNorm, rotary positions and gated activations that are chains of a "      \
         "framework's operations; 0: as pointwise")                                                \
    REAL(attention_kernels, attention_kernels, 1, 0.01, 100, 1,                                    \
         "kernels that an attention is launched as; 1: it is fused")                               \
    REAL(sum16_bytes, sum16_bytes, 1, 0, 100, 0,                                                   \
         "bytes that a kernel of its own moves for each element of a weight's gradient, in each "  \
         "micro-batch, to add it to a sum of two bytes; 0: what makes it adds it")                 \
    REAL(sum32_bytes, sum32_bytes, 1, 0, 100, 0, "the same, to a sum of four bytes")               \
    FLAG(whole_again, false,                                                                       \
         "full recomputation runs all of a layer again, what no gradient needs too")               \
    FLAG(whole_logits, false,                                                                      \
         "each rank of tp gathers the logits of all columns, and makes their loss")                \
    FLAG(whole_head, false,                                                                        \
         "each rank of tp makes the logits of all columns by itself; bytes of the weight are a "   \
         "piece's")                                                                                \
    /* The host issues operations, and is ahead of the device where that takes less time. */       \
    REAL(step_s, step_s, 1, 0, 60, 0,                                                              \
         "seconds of the host's work in each step that nothing hides")                             \
    REAL(issue_s, issue_us, 1e-6, 0, 100000, 0,                                                    \
         "microseconds in which the host issues an operation of a layer; 0: it is always ahead")   \
    REAL(expert_issue_s, expert_issue_us, 1e-6, 0, 100000, 0,                                      \
         "of a layer's experts in a forward pass, besides; twice as many in a backward pass")      \
    REAL(expert_product_s, expert_product_us, 1e-6, 0, 100000, 0,                                  \
         "of each expert's part of a product")                                                     \
    FLAG(expert_wait, false, "the host waits until the router has said how many rows go where")    \
    /* Messages. */                                                                                \
    FLAG(dp_beside, false,                                                                         \
         "where there is no pipeline sums of gradients go beside the backward pass, whatever "     \
         "dp_overlap says")                                                                        \
    FLAG(beside, true,                                                                             \
         "messages of tensor and context parallelism go beside products as the plan has them, "    \
         "and are hidden by what is played then; no: tp_overlap and cp_overlap say how much, and " \
         "rows that layout.sp gathers stand between products")                                     \
    FLAG(pp_pieces, false,                                                                         \
         "between stages each rank of tp sends a piece of the rows that all of them have, which "  \
         "is gathered there")                                                                      \
    COUNT(ep_nodes, 1 << 20,                                                                       \
          "of experts: a token's row goes once to each node, to so many at most; 0: to each "      \
          "expert by itself")                                                                      \
    REAL(ep_bytes, ep_bytes, 1, 0, 1, 1,                                                           \
         "of experts: bytes of rows that travel, relative to the plan's")                          \
    REAL(imbalance, imbalance, 1, 0.01, 100, 1,                                                    \
         "of experts: rows of the fullest rank, relative to the mean")                             \
    REAL(ep_gb_s, ep_gb_s, 1, 0, 1e5, 0,                                                           \
         "of experts: gigabytes a second that a rank sends at most, however fast its links are; "  \
         "0: no bound")                                                                            \
    REAL(cp_gb_s, cp_gb_s, 1, 0, 1e5, 0, "the same, of context parallelism's messages")            \
    FLAG(expert_sorts, false,                                                                      \
         "rows that have come are put in order of a rank's experts, and back before they go")      \
    FLAG(rings, false,                                                                             \
         "gathers, scatters and sums go round rings of all ranks, so that a node's links carry "   \
         "the pieces of its own ranks too, as NCCL's; no: what other nodes have, once")            \
    COUNT(sum_bytes, 1e15,                                                                         \
          "bytes of gradients that are summed or scattered at once, when all of them are there, "  \
          "of what is summed once in a step; 0: layer by layer")                                   \
    REAL(hop_s, hop_us, 1e-6, 0, 100000, 0,                                                        \
         "microseconds of a hop within a node, of gathers and scatters that go round a ring of "   \
         "all ranks; 0: the links' latencies, and doubling where that is quicker")                 \
    REAL(hop_outside_s, hop_outside_us, 1e-6, 0, 100000, 0, "the same between nodes")              \
    REAL(piece_s, piece_us, 1e-6, 0, 100000, 0,                                                    \
         "microseconds for each rank's piece of what ZeRO-3 gathers and scatters, which goes "     \
         "tensor by tensor through a buffer then; 0: layer by layer, in place")                    \
    COUNT(reuse_distance, 1e15,                                                                    \
          "with piece_us: a weight is gathered again between being computed again and its "        \
          "gradient where so many elements of others are used; 0: always")                         \
    COUNT(persistent, 1e15,                                                                        \
          "with piece_us: weights of fewer elements are whole on every rank of ZeRO-3, and "       \
          "gathered after the update, piece by piece")                                             \
    REAL(crowding, crowding, 1, 0, 1, 0,                                                           \
         "by which products slow down while messages go beside them over the innermost links; "    \
         "slower ones take as much less")                                                          \
    FLAG(fp8_gathers, false, "under fp8 rows are cast before layout.sp gathers them over tp")      \
    /* Bytes. */                                                                                   \
    REAL(activations, activations, 1, 0.01, 100, 1,                                                \
         "bytes kept for the backward pass, relative to the plan's")                               \
    REAL(score_bytes, score_bytes, 1, 0, 16, 0,                                                    \
         "bytes kept of each score where attention is not fused; 0: it is")                        \
    REAL(mask_bytes, mask_bytes, 1, 0, 16, 0,                                                      \
         "bytes kept of each element of a layer's rows: the masks of its dropouts")                \
    REAL(logit_bytes, logit_bytes, 1, 0, 64, 0,                                                    \
         "bytes of each logit of a micro-batch that are there at once at the loss; 0: they go by " \
         "chunks")                                                                                 \
    FLAG(fp8_inputs, false,                                                                        \
         "under fp8 the inputs of products are kept for the gradients of weights in one byte")     \
    FLAG(fp8_weights, false,                                                                       \
         "under fp8 weights of products are kept in one byte, and in that alone")                  \
    COUNT(live_parameters, 1e15,                                                                   \
          "elements of whole weights that ZeRO-3 holds at a time; 0: two layers', as the plan")    \
    COUNT(reduce_bucket, 1e15,                                                                     \
          "elements of the bucket that ZeRO-2 and 3 copy a gradient to; 0: none, a layer's are "   \
          "held")                                                                                  \
    COUNT(loose_grads, 8,                                                                          \
          "gradients of at most so many bytes an element come and go, too; wider ones have a "     \
          "buffer that stays")
// clang-format on

#define HABIT_REAL(field, key, scale, least, most, none, help) double field;
#define HABIT_COUNT(field, most, help)                         int64_t field;
#define HABIT_FLAG(field, none, help)                          bool field;
struct cost_habits {
    COST_HABITS(HABIT_REAL, HABIT_COUNT, HABIT_FLAG)
};
#undef HABIT_REAL
#undef HABIT_COUNT
#undef HABIT_FLAG

extern const cost_habits cost_habits_none; // every habit has the value that changes nothing
static inline const cost_habits *cost_habits_of(const cost_profile *p)
{
    return p->habits != NULL ? p->habits : &cost_habits_none;
}

// Time that the host takes to issue an operation, and whether it waits until the operation is done.
int64_t cost_issue_ns(const cost_model *m, const op_node *node);
bool cost_host_waits(const cost_model *m, op_code code);
bool cost_has_host(const cost_profile *p);       // can the host fall behind?
int64_t cost_step_ns(const cost_profile *p);     // additional time of each step
bool cost_has_all_logits(const cost_profile *p); // each rank of tp gathers or computes all logits

#ifdef __cplusplus
}
#endif
#endif
