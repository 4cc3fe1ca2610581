// Shared by the files of pass 3: collect.c (the walk, actions and waits), _nodes (lists, cut at
// their communications), _comm (records of those), _gradients (sums over ranks), _step (the step
// block, the update), _zero (what is cut over dp), _links (messages between stages) and _codec
// (sums that travel compressed).
#ifndef PLAN_LOWER_COLLECT_INTERNAL_H
#define PLAN_LOWER_COLLECT_INTERNAL_H

#include "plan/lower/collect.h"
#include "plan/lower/overlap.h"

// Sums of gradients stand on streams of their own: whole ones, those of rows for who keeps them,
// and those of rows among who keeps the same.
enum { SUM_WHOLE, SUM_ROWS, SUM_ACROSS, SUM_STREAMS };

typedef struct wait_pair {
    int32_t action, on; // as in plan_action
} wait_pair;

typedef struct collect_groups { // rows of the groups
    int32_t data;               // ranks with other rows of the batch; -1: there is one
    int32_t cut;                // of dp, those that states are cut over; -1: nothing is
    int32_t across;             // those that hold the same pieces; -1: nobody else does
} collect_groups;

// A whole gradient on its way into the rows that its ranks keep.
typedef struct unsharded_sum {
    int32_t tensor, action;
    int64_t visit; // that made it
} unsharded_sum;

typedef struct collect_zero {
    int32_t *gather_of;   // [weight] action: its all_gather after the update; -1: none
    int32_t *gathered_by; // [weight] action that brings it and is still to be waited for; -1
    int64_t *needed_at;   // [weight] visit that it was last brought for
    int32_t *summed_by;   // [weight] action: the last sum into this rank's rows of its gradient; -1
    int64_t visit;        // that begins next, or is on the way
    unsharded_sum *unsharded;
    int64_t unsharded_count, unsharded_capacity, unsharded_done;
} collect_zero;

typedef struct link_message {
    int32_t chunk, microbatch;
} link_message;
// What comes over one link, in the order in which it is sent.
typedef struct link_state {
    int32_t group;
    boundary_kind kind;
    link_message *messages;
    int64_t count, capacity, taken;
} link_state;
enum { COLLECT_MAX_LINKS = 8 };
typedef struct collect_links {
    int32_t (
        *group)[BOUNDARY_COUNT]; // [chunk] row of the groups; -1: nothing crosses to another rank
    link_state links[COLLECT_MAX_LINKS];
    int32_t link_count;
    int32_t
        *received[BOUNDARY_COUNT]; // [chunk * micro-batches + micro-batch] action that brings it
    boundary_buffer *buffers;      // [buffer]
} collect_links;

// Floats of a sum that travels compressed, and of those a rank's piece.
typedef struct codec_cut {
    int64_t count, piece; // piece 0: it gets all; count: of SUM_ACROSS on the ranks that have most
} codec_cut;
// Such a sum, of this stage or another.
typedef struct codec_bucket {
    char name[PLAN_NAME_BYTES];
    int32_t stage, row, ranks; // row of plan.buckets
    int32_t feedback;          // run tensor; -1: none
    codec_cut *cuts;           // [rank of tp]
} codec_bucket;
typedef struct collect_codec {
    codec_bucket *buckets; // of all stages
    int64_t bucket_count, bucket_capacity;
    struct {
        int32_t group, tensor; // transient tensor that its compressed sums work in
    } works[KIND_COUNT * SUM_STREAMS];
    int work_count;
} collect_codec;

typedef struct shared_comm shared_comm; // collect_comm.c

typedef struct collector {
    const lower_input *in;
    const expanded *x;
    const bound *b;
    collected *out;
    int32_t microbatch;   // that actions are added for
    int32_t last_compute; // action: the last one on that stream
    int32_t *next_waits;  // of the compute action that comes next
    int64_t next_wait_count, next_wait_capacity;
    wait_pair *pairs; // become plan.waits
    int64_t pair_count, pair_capacity;
    int32_t *first_forward; // [layer] action: the forward of the first micro-batch; -1
    collect_groups groups[KIND_COUNT];
    int32_t last_sum[KIND_COUNT][SUM_STREAMS]; // action: the last sum of gradients; -1: none
    int32_t leaves_begin[2];                   // into plan.leaves
    bool has_leaves;                           // they are there
    collect_zero zero;
    collect_links links;
    collect_codec codec;
    shared_comm *shared; // records that several actions have
    int64_t shared_count;
} collector;

static inline const collect_groups *collect_groups_of(const collector *c, int32_t weight)
{
    return &c->groups[lower_kind_of(c->in, weight)];
}

// collect.c
NODISCARD status collect_action(collector *c, const plan_action *action, int32_t *index);
NODISCARD status collect_wait(collector *c, int32_t action, int32_t on);
// The compute action that comes next waits for this one, too.
NODISCARD status collect_wait_next(collector *c, int32_t on);
// What was asked to be waited for, by the compute action added last.
NODISCARD status collect_waits_take(collector *c);
void collect_tick(collector *c); // the communication added last takes a moment
NODISCARD status collect_item(collector *c, plan_comm *comm, const plan_comm_item *item);
// A communication after `after`; -1 waits for nothing.
NODISCARD status collect_comm(collector *c, const plan_comm *comm, const comm_note *note,
                              int32_t after, int32_t *action);
// Another action of that communication.
NODISCARD status collect_comm_again(collector *c, int32_t comm, int32_t after, int32_t *action);

// collect_nodes.c: a range of nodes as actions, communications between them.
NODISCARD status collect_nodes(collector *c, const plan_action *action);

// collect_comm.c
NODISCARD status collect_shared_begin(collector *c); // before any communication
// The communication that the action's range begins with: in its turn on the compute stream; on its
// group's own stream, after the compute action added last (`more`: other rows of it follow); and of
// a ring, what it sends and what it receives.
NODISCARD status collect_inline(collector *c, const plan_action *action);
NODISCARD status collect_aside(collector *c, const plan_action *action, bool more, int32_t *out);
NODISCARD status collect_ring(collector *c, const plan_action *action, int32_t *out);

// collect_gradients.c: sums of a layer's gradients when all are complete; the rest of them before
// the update.
NODISCARD status collect_gradients(collector *c, int32_t layer);
NODISCARD status collect_terms_end(collector *c);
// Row of the group that whole gradients are summed in; -1: there is one rank.
NODISCARD status collect_sum_group(collector *c, lower_kind kind, int32_t *group);
// Does each rank get its rows of the weight's sum only?
bool collect_is_scattered(const collector *c, int32_t weight);
NODISCARD status collect_sums_wait(collector *c, int32_t action);

// collect_step.c
// *decide: the action that decides about the update.
NODISCARD status collect_update(collector *c, int32_t *decide);
NODISCARD status collect_step_sums(collector *c);

// collect_zero.c
NODISCARD status collect_zero_begin(collector *c);
// Around what a layer does in a micro-batch.
NODISCARD status collect_visit_begin(collector *c);
NODISCARD status collect_visit_end(collector *c);
// Before a layer makes its gradients, and when it has made them: they go where they stay.
NODISCARD status collect_unsharded_begin(collector *c, int32_t layer);
NODISCARD status collect_unsharded_sum(collector *c, int32_t layer, const bound_visit *visit);
NODISCARD status collect_unsharded_end(collector *c);
// Sums of rows that are whole on the ranks that cut; now across, where there are copies.
NODISCARD status collect_across_sum(collector *c, int32_t weight, int32_t ref, int32_t after);
NODISCARD status collect_weight_gather(collector *c, int32_t weight, int32_t after);
NODISCARD status collect_forward_waits(collector *c);

// collect_links.c
NODISCARD status collect_links_begin(collector *c);
// Before a chunk's action, and after it; `first`: action from which on it was added.
NODISCARD status collect_chunk_begin(collector *c, const layer_visit *visit);
NODISCARD status collect_chunk_end(collector *c, const layer_visit *visit, int32_t first);
NODISCARD status collect_steps_join(collector *c);

// collect_codec.c: which sums travel compressed, if any do.
NODISCARD status collect_codec_begin(collector *c);
bool collect_is_compressed(const collector *c, int32_t weight);
// Makes a sum one of them if it is: `weight` is one that it is of; layer: of SUM_WHOLE, its name.
NODISCARD status collect_codec_sum(collector *c, plan_comm *comm, comm_note *note, int stream,
                                   const char *layer, int32_t weight);
// What all ranks measured, on all of them: the compute action that comes next waits for it.
NODISCARD status collect_codec_losses(collector *c);

#endif
