// Shared by the files of pass 3: collect.c (the walk, actions and waits), _nodes (lists, cut at
// their communications), _comm (records of those), _gradients (sums over ranks), _step (the step
// block, the update), _zero (tensors that ZeRO cuts), _links (transfers between stages) and _codec
// (compressed sums).
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

typedef struct collect_groups { // rows of the table of groups
    int32_t data;               // ranks with other rows of the batch; -1: there is one rank
    int32_t cut;                // ranks of dp that optimizer states are cut over; -1: none
    int32_t across;             // ranks that hold the same pieces; -1: there is one rank
} collect_groups;

// A whole gradient that is being reduced into the rows that its ranks keep.
typedef struct unsharded_sum {
    int32_t tensor, action;
    int64_t visit; // the visit that made it
} unsharded_sum;

typedef struct collect_zero {
    int32_t *gather_of;   // [weight] action: its all_gather after the update; -1: none
    int32_t *gathered_by; // [weight] action that gathers it and has not been waited for; -1
    int64_t *needed_at;   // [weight] visit for which it was gathered last
    int32_t *summed_by;   // [weight] action: the last sum into this rank's rows of its gradient; -1
    int64_t visit;        // the next or the current visit
    unsharded_sum *unsharded;
    int64_t unsharded_count, unsharded_capacity, unsharded_done;
} collect_zero;

typedef struct link_transfer {
    int32_t chunk, microbatch;
} link_transfer;
// Transfers received over one link, in the order in which they are sent.
typedef struct link_state {
    int32_t group;
    boundary_kind kind;
    link_transfer *transfers;
    int64_t count, capacity, taken;
} link_state;
enum { COLLECT_MAX_LINKS = 8 };
typedef struct collect_links {
    int32_t (*group)[BOUNDARY_COUNT]; // [chunk] row of the groups; -1: no transfer to another rank
    link_state links[COLLECT_MAX_LINKS];
    int32_t link_count;
    int32_t
        *received[BOUNDARY_COUNT]; // [chunk * micro-batches + micro-batch] action that receives it
    boundary_buffer *buffers;      // [buffer]
} collect_links;

// The number of floats of a compressed sum, and of a rank's piece of it.
typedef struct codec_cut {
    int64_t count, piece; // piece 0: each gets all; SUM_ACROSS: of the ranks with most
} codec_cut;
// A compressed sum of this stage or another one.
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
        int32_t group, tensor; // transient tensor: workspace of its compressed sums
    } works[KIND_COUNT * SUM_STREAMS];
    int work_count;
} collect_codec;

typedef struct shared_comm shared_comm; // collect_comm.c

typedef struct collector {
    const lower_input *in;
    const expanded *x;
    const bound *b;
    collected *out;
    int32_t microbatch;   // of the actions that are added
    int32_t last_compute; // action: the last one on that stream
    int32_t *next_waits;  // waits of the next compute action
    int64_t next_wait_count, next_wait_capacity;
    wait_pair *pairs; // become plan.waits
    int64_t pair_count, pair_capacity;
    int32_t *first_forward; // [layer] action: the forward of the first micro-batch; -1
    collect_groups groups[KIND_COUNT];
    int32_t last_sum[KIND_COUNT][SUM_STREAMS]; // action: the last sum of gradients; -1: none
    int32_t leaves_begin[4];                   // into plan.leaves
    bool has_leaves;                           // true after leaves_begin is set
    collect_zero zero;
    collect_links links;
    collect_codec codec;
    shared_comm *shared; // records that several actions share
    int64_t shared_count;
} collector;

static inline const collect_groups *collect_groups_of(const collector *c, int32_t weight)
{
    return &c->groups[lower_kind_of(c->in, weight)];
}

// collect.c
NODISCARD status collect_action(collector *c, const plan_action *action, int32_t *index);
NODISCARD status collect_wait(collector *c, int32_t action, int32_t on);
// Makes the next compute action wait for this one too.
NODISCARD status collect_wait_next(collector *c, int32_t on);
// Gives the collected waits to the compute action that was added last.
NODISCARD status collect_waits_take(collector *c);
void collect_tick(collector *c); // the communication added last takes one time step
NODISCARD status collect_item(collector *c, plan_comm *comm, const plan_comm_item *item);
// Adds a communication that waits for action `after`; -1: it waits for none.
NODISCARD status collect_comm(collector *c, const plan_comm *comm, const comm_note *note,
                              int32_t after, int32_t *action);
// Adds another action of that communication.
NODISCARD status collect_comm_again(collector *c, int32_t comm, int32_t after, int32_t *action);

// collect_nodes.c: adds a range of nodes as actions, with the communications between them.
NODISCARD status collect_nodes(collector *c, const plan_action *action);

// collect_comm.c
NODISCARD status collect_shared_begin(collector *c); // before any communication
// Adds the communication that begins the action's range: on the compute stream; on its group's own
// stream, after the compute action added last (`more`: other rows of it follow); or, for a ring,
// both the send and the receive.
NODISCARD status collect_inline(collector *c, const plan_action *action);
NODISCARD status collect_overlapped(collector *c, const plan_action *action, bool more,
                                    int32_t *out);
NODISCARD status collect_ring(collector *c, const plan_action *action, int32_t *out);

// collect_gradients.c: sums of a layer's gradients when all are complete, and the remaining sums
// before the update.
NODISCARD status collect_gradients(collector *c, int32_t layer);
NODISCARD status collect_terms_end(collector *c);
// Row of the group that sums whole gradients; -1: there is one rank.
NODISCARD status collect_sum_group(collector *c, lower_kind kind, int32_t *group);
// True if each rank gets only its rows of the weight's sum.
bool collect_is_scattered(const collector *c, int32_t weight);
NODISCARD status collect_sums_wait(collector *c, int32_t action);

// `*decide`: the action that decides about the update.
NODISCARD status collect_update(collector *c, int32_t *decide);
NODISCARD status collect_step_sums(collector *c);

// collect_zero.c
NODISCARD status collect_zero_begin(collector *c);
// Called before and after each visit of a layer.
NODISCARD status collect_visit_begin(collector *c);
NODISCARD status collect_visit_end(collector *c);
// Called before a layer makes its whole gradients, after it has made them, and at the end: they are
// reduced into the rows that stay.
NODISCARD status collect_unsharded_begin(collector *c, int32_t layer);
NODISCARD status collect_unsharded_sum(collector *c, int32_t layer, const bound_visit *visit);
NODISCARD status collect_unsharded_end(collector *c);
// Adds the sum across the ranks with copies of rows that are complete inside their group.
NODISCARD status collect_across_sum(collector *c, int32_t weight, int32_t ref, int32_t after);
NODISCARD status collect_weight_gather(collector *c, int32_t weight, int32_t after);
NODISCARD status collect_forward_waits(collector *c);

// collect_links.c
NODISCARD status collect_links_begin(collector *c);
// Called before and after a chunk's action; `first`: its first action in the list.
NODISCARD status collect_chunk_begin(collector *c, const layer_visit *visit);
NODISCARD status collect_chunk_end(collector *c, const layer_visit *visit, int32_t first);
NODISCARD status collect_steps_join(collector *c);

// collect_codec.c: compressed sums, if there are any.
NODISCARD status collect_codec_begin(collector *c);
bool collect_is_compressed(const collector *c, int32_t weight);
// Makes a sum compressed if its weights are: `weight` is one of them; `layer`: the name of a
// SUM_WHOLE.
NODISCARD status collect_codec_sum(collector *c, plan_comm *comm, comm_note *note, int stream,
                                   const char *layer, int32_t weight);
// Gathers the losses that all ranks measured; the next compute action waits for it.
NODISCARD status collect_codec_losses(collector *c);

#endif
