// Classic mistakes of those who lay out training over many ranks, one by one planted in plans that are
// sound: each is found before anything starts, and the message names the place. Here are those that the
// verifier finds, in plans changed behind plan_create's back; what only running shows (the contract between
// ranks, a comparison with one rank block by block) is tested where that is.
#include "plan/verify_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// ---- finding places -----------------------------------------------------------------------------

static plan_action *action_at(plan *p, int32_t index)
{
    assert_true(index >= 0 && index < p->action_count);
    return &p->actions[index];
}

// The n-th communication of this operation whose name begins so.
static int32_t find_comm(const plan *p, plan_comm_op op, const char *name, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].kind != ACTION_COMMUNICATE) continue;
        const plan_comm *c = &p->comms[p->actions[i].comm];
        if (c->op == op && strncmp(c->name, name, strlen(name)) == 0 && n-- == 0) return i;
    }
    assert_true(false);
    return -1;
}

// The n-th action of a layer's list in a micro-batch.
static int32_t find_list(const plan *p, const char *layer, op_list list, int32_t microbatch, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->kind != ACTION_COMPUTE || a->layer < 0 || a->list != (int32_t)list) continue;
        if (a->microbatch != microbatch) continue;
        if (strcmp(p->model->layers[a->layer].name, layer) == 0 && n-- == 0) return i;
    }
    assert_true(false);
    return -1;
}

// The n-th action whose first node is this operation.
static int32_t find_node(const plan *p, op_code code, int n)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        if (a->binding < 0 || a->ops_count == 0) continue;
        const op_program *program = p->bindings[a->binding].program;
        if (program->lists[a->list].nodes[a->ops_begin].code == code && n-- == 0) return i;
    }
    assert_true(false);
    return -1;
}

static int32_t find_kind(const plan *p, action_kind kind)
{
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].kind == kind) return i;
    }
    assert_true(false);
    return -1;
}

static plan_tensor *tensor_named(plan *p, const char *name)
{
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (strcmp(p->tensors[i].name, name) == 0) return &p->tensors[i];
    }
    for (int64_t i = 0; i < p->run->count; i++) {
        if (strcmp(p->run->tensors[i].name, name) == 0) return &p->run->tensors[i];
    }
    assert_true(false);
    return NULL;
}

static plan_comm *comm_at(plan *p, int32_t action)
{
    return &p->comms[action_at(p, action)->comm];
}

static plan_comm_item *item_at(plan *p, int32_t action, int32_t item)
{
    return &p->items[comm_at(p, action)->items_begin + item];
}

// ---- small changes ------------------------------------------------------------------------------

// Its place in the list stays, it does nothing.
static void leave_out(plan *p, int32_t index)
{
    plan_action *a = action_at(p, index);
    *a = (plan_action){.kind = ACTION_COMPUTE,
                       .lane = a->lane,
                       .microbatch = -1,
                       .layer = -1,
                       .waits_begin = a->waits_begin,
                       .waits_count = a->waits_count};
}

static void forget_waits(plan *p, int32_t index)
{
    assert_true(action_at(p, index)->waits_count > 0);
    action_at(p, index)->waits_count = 0;
}

static void wait_for(plan *p, int32_t index, int32_t on)
{
    plan_action *a = action_at(p, index);
    int32_t *waits = NULL;
    assert_int_equal(arena_new(p->run->a, p->wait_count + a->waits_count + 1, &waits), ST_OK);
    memcpy(waits, p->waits, (size_t)p->wait_count * sizeof(*waits));
    for (int32_t k = 0; k < a->waits_count; k++) {
        waits[p->wait_count + k] = p->waits[a->waits_begin + k];
    }
    waits[p->wait_count + a->waits_count] = on;
    a->waits_begin = (int32_t)p->wait_count;
    p->wait_count += ++a->waits_count;
    p->waits = waits;
}

// The tensors that an action's program stands for here, in a copy that may be changed.
static int32_t *own_map(plan *p, int32_t index)
{
    plan_binding *b = &p->bindings[action_at(p, index)->binding];
    int32_t *map = NULL;
    assert_int_equal(arena_new(p->run->a, b->program->tensor_count, &map), ST_OK);
    memcpy(map, b->tensor, (size_t)b->program->tensor_count * sizeof(*map));
    b->tensor = map;
    return map;
}

static void swap_first_two(int32_t *map)
{
    const int32_t one = map[0];
    map[0] = map[1];
    map[1] = one;
}

static void swap_comms(plan *p, int32_t one, int32_t other)
{
    const int32_t comm = action_at(p, one)->comm;
    action_at(p, one)->comm = action_at(p, other)->comm;
    action_at(p, other)->comm = comm;
}

// ---- the mistakes -------------------------------------------------------------------------------

static void sum_does_not_wait(job *j)
{
    forget_waits(j->plans[1], find_comm(j->plans[1], PLAN_ALL_REDUCE, "gradients, layers.1", 0));
}

static void sum_waits_for_an_earlier_micro_batch(job *j)
{
    plan *p = j->plans[0];
    const int32_t sum = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.0", 0);
    p->waits[action_at(p, sum)->waits_begin] = find_list(p, "layers.0", OP_BACKWARD_WEIGHT, 0, 0);
}

static void norm_does_not_wait(job *j)
{
    forget_waits(j->plans[0], find_node(j->plans[0], OP_GRAD_NORM, 0));
}

static void forward_does_not_wait_for_weights(job *j)
{
    forget_waits(j->plans[1], find_list(j->plans[1], "layers.1", OP_FORWARD, 0, 0));
}

static void batch_is_copied_while_it_is_read(job *j)
{
    forget_waits(j->plans[0], find_kind(j->plans[0], ACTION_COPY));
}

static void step_begins_before_its_batch(job *j)
{
    forget_waits(j->plans[0], find_node(j->plans[0], OP_STEP_BEGIN, 0));
}

static void results_are_read_too_early(job *j)
{
    forget_waits(j->plans[0], find_kind(j->plans[0], ACTION_READBACK));
}

static void decision_does_not_wait(job *j)
{
    forget_waits(j->plans[1], find_node(j->plans[1], OP_STEP_DECIDE, 0));
}

static void gather_does_not_wait(job *j)
{
    plan *p = j->plans[0];
    const int32_t gather = find_comm(p, PLAN_ALL_GATHER, "layers.1.up", 0);
    p->waits[action_at(p, gather)->waits_begin] = find_node(p, OP_STEP_DECIDE, 0);
}

static void optimizer_stands_on_another_lane(job *j)
{
    action_at(j->plans[0], find_node(j->plans[0], OP_ADAMW, 3))->lane = LANE_COPY;
}

static void buckets_are_swapped_on_one_rank(job *j)
{
    plan *p = j->plans[1];
    swap_comms(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0),
               find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.0", 0));
}

static void bucket_is_skipped_on_one_rank(job *j)
{
    leave_out(j->plans[1], find_comm(j->plans[1], PLAN_ALL_REDUCE, "gradients, layers.0", 0));
}

static void last_sum_is_skipped_on_one_rank(job *j)
{
    leave_out(j->plans[1], find_comm(j->plans[1], PLAN_ALL_REDUCE, "sums of the step", 0));
}

static void bucket_is_skipped(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        leave_out(j->plans[r], find_comm(j->plans[r], PLAN_ALL_REDUCE, "gradients, layers.0", 0));
    }
}

static void bucket_is_reduced_twice(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_action *other = action_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, embed", 0));
        other->comm = action_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.0", 0))->comm;
    }
}

static void count_differs(job *j)
{
    plan *p = j->plans[1];
    item_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0), 2)->count -= 8;
}

static void type_differs(job *j)
{
    plan *p = j->plans[1];
    comm_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0))->type = DTYPE_I32;
}

static void bucket_lacks_a_tensor(job *j)
{
    plan *p = j->plans[1];
    comm_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0))->items_count--;
}

static void bucket_has_one_tensor_twice(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        const int32_t sum = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0);
        *item_at(p, sum, 1) = *item_at(p, sum, 5);
        // Equal shapes: norm1 and norm2.
    }
}

static void item_reaches_out_of_its_tensor(job *j)
{
    plan *p = j->plans[1]; // the last
    item_at(p, find_comm(p, PLAN_ALL_GATHER, "layers.0.down", 0), 0)->in_offset += 64;
}

static void piece_is_the_neighbours(job *j)
{
    plan *p = j->plans[1];
    item_at(p, find_comm(p, PLAN_ALL_GATHER, "layers.0.down", 0), 0)->in_offset = 0;
}

static void piece_comes_from_elsewhere(job *j)
{
    plan *p = j->plans[1];
    plan_comm_item *item = item_at(p, find_comm(p, PLAN_ALL_GATHER, "layers.0.down", 0), 0);
    item->in = plan_run_ref(plan_table_find(p->run, "m.layers.0.down"));
    item->in_offset = 0;
}

static void piece_of_the_sum_goes_elsewhere(job *j)
{
    plan *p = j->plans[1];
    item_at(p, find_comm(p, PLAN_REDUCE_SCATTER, "gradients, layers.0.down", 0), 0)->out_offset = 0;
}

static void group_is_none(job *j)
{
    comm_at(j->plans[0], find_comm(j->plans[0], PLAN_ALL_REDUCE, "gradients, head", 0))->group = 7;
}

static void wait_is_for_what_comes_later(job *j)
{
    plan *p = j->plans[0];
    wait_for(p, find_list(p, "head", OP_FORWARD, 0, 0),
             find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0));
}

// Two groups of the same ranks: each rank does the other group's operation first.
static void groups_wait_for_each_other(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        int32_t row = 0;
        const plan_group other = plan_group_of(&j->mesh, MESH_AXIS(AXIS_DP), GROUP_PAIR);
        assert_int_equal(plan_table_group(p->run, &other, &row), ST_OK);
        const int32_t one = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0);
        const int32_t two = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.0", 0);
        if (r == 0) { // there the second one is told to go first
            const plan_action first = *action_at(p, one);
            const int32_t wait = p->waits[action_at(p, two)->waits_begin];
            p->waits[first.waits_begin] = wait;
            *action_at(p, one) = *action_at(p, two);
            *action_at(p, two) = first;
            // both stand where the later one stood
            const plan_action moved = *action_at(p, one);
            for (int32_t i = one; i + 1 < two; i++) p->actions[i] = p->actions[i + 1];
            p->actions[two - 1] = moved;
            for (int64_t i = 0; i < p->wait_count; i++) {
                if (p->waits[i] > one && p->waits[i] < two) p->waits[i]--;
            }
        }
        const int32_t second = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.0", 0);
        comm_at(p, second)->group = row;
        action_at(p, second)->lane = LANE_GROUPS + row;
        const int32_t first = find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0);
        wait_for(p, r == 0 ? first : second, r == 0 ? second : first);
        wait_for(p, find_node(p, OP_GRAD_NORM, 0), second);
    }
}

static void activations_share_bytes(job *j)
{
    plan *p = j->plans[0];
    tensor_named(p, "layers.0/matmul.y")->offset = tensor_named(p, "layers.0/attention.y")->offset;
}

static void workspace_lies_over_a_gradient(job *j)
{
    plan *p = j->plans[0];
    tensor_named(p, "workspace.layers.0.matmul_dw")->offset =
        tensor_named(p, "grad.layers.0.out")->offset;
}

static void run_tensors_share_bytes(job *j)
{
    plan *p = j->plans[1];
    tensor_named(p, "m.layers.0.up")->offset = tensor_named(p, "v.layers.0.up")->offset + 64;
}

static void tensor_lies_outside(job *j)
{
    plan *p = j->plans[1];
    tensor_named(p, "grad.layers.0.up")->offset = p->transient_bytes - 64;
}

static void tensor_is_too_small(job *j)
{
    tensor_named(j->plans[0], "layers.1/swiglu.a")->bytes /= 2;
}

static void accumulator_starts_again(job *j)
{
    plan *p = j->plans[0];
    action_at(p, find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 1, 0))->accumulate = false;
}

static void accumulator_goes_on_from_the_step_before(job *j)
{
    plan *p = j->plans[0];
    action_at(p, find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 0, 0))->accumulate = true;
}

static void micro_batch_is_done_twice(job *j)
{
    plan *p = j->plans[1];
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].microbatch == 1) p->actions[i].microbatch = 0;
    }
}

static void weight_gradient_is_skipped(job *j)
{
    plan *p = j->plans[1];
    leave_out(p, find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 1, 0));
}

static void tied_embedding_gives_nothing(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        for (int32_t i = 0; i < 2; i++) {
            leave_out(j->plans[r], find_list(j->plans[r], "embed", OP_BACKWARD_WEIGHT, i, 0));
        }
    }
}

static void ranks_take_the_same_sequences(job *j)
{
    j->plans[1]->first_sequence = 0;
}

static void forward_is_skipped(job *j)
{
    leave_out(j->plans[0], find_list(j->plans[0], "layers.0", OP_FORWARD, 1, 0));
}

static void recomputation_is_skipped(job *j)
{
    leave_out(j->plans[0], find_list(j->plans[0], "layers.0", OP_RECOMPUTE, 0, 0));
}

static void backward_comes_before_forward(job *j)
{
    plan *p = j->plans[0];
    const int32_t back = find_list(p, "layers.1", OP_BACKWARD_INPUT, 0, 0);
    const int32_t other = find_list(p, "layers.1", OP_FORWARD, 0, 0);
    const plan_action one = *action_at(p, back);
    *action_at(p, back) = *action_at(p, other);
    *action_at(p, other) = one;
}

static void optimizer_takes_another_gradient(job *j)
{
    plan *p = j->plans[0];
    const int32_t other = find_node(p, OP_ADAMW, 6); // norm2, of the shape of norm1
    own_map(p, find_node(p, OP_ADAMW, 1))[0] = p->bindings[action_at(p, other)->binding].tensor[0];
}

static void optimizer_leaves_a_weight_out(job *j)
{
    leave_out(j->plans[1], find_node(j->plans[1], OP_ADAMW, 4));
}

static void weight_is_updated_twice(job *j)
{
    plan *p = j->plans[1];
    *action_at(p, find_node(p, OP_ADAMW, 4)) = *action_at(p, find_node(p, OP_ADAMW, 3));
}

static void updated_rows_are_not_gathered(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        leave_out(j->plans[r], find_comm(j->plans[r], PLAN_ALL_GATHER, "layers.1.qkv", 0));
    }
}

static void tokens_are_not_summed(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c = comm_at(p, find_comm(p, PLAN_ALL_REDUCE, "sums of the step", 0));
        c->items_begin++;
        c->items_count--;
    }
}

static void losses_are_not_summed(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        leave_out(j->plans[r], find_comm(j->plans[r], PLAN_ALL_REDUCE, "sums of the step", 0));
    }
}

static void norm_is_of_own_rows(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        comm_at(p, find_comm(p, PLAN_ALL_REDUCE, "sums of the step", 0))->items_count--;
    }
}

static void norm_leaves_a_weight_out(job *j)
{
    leave_out(j->plans[0], find_node(j->plans[0], OP_GRAD_NORM, 2));
}

static void norm_counts_a_weight_on_every_rank(job *j)
{
    // Rank 1 has no norm of what is not cut; now it has rank 0's instead of one of its rows.
    plan *p = j->plans[1];
    const plan *first = j->plans[0];
    for (int n = 0;; n++) {
        const plan_action *theirs = &first->actions[find_node(first, OP_GRAD_NORM, n)];
        const plan_binding *b = &first->bindings[theirs->binding];
        const plan_tensor *t = plan_tensor_at(first, b->tensor[0]);
        if (t->is_part) continue;
        const int32_t index = find_node(p, OP_GRAD_NORM, 1);
        own_map(p, index)[0] = (int32_t)(tensor_named(p, t->name) - p->tensors);
        p->bindings[action_at(p, index)->binding].program = b->program;
        return;
    }
}

static void sum_has_no_order(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c = comm_at(p, find_comm(p, PLAN_ALL_REDUCE, "gradients, layers.1", 0));
        c->leaves_count = 0;
    }
}

static void shards_are_joined_the_wrong_way_round(job *j)
{
    plan *p = j->plans[0];
    swap_first_two(own_map(p, find_node(p, OP_TREE_ADD, 0)));
}

static void leaf_is_of_other_shards(job *j)
{
    plan *p = j->plans[1];
    p->leaves[0].begin = 0;
    p->leaves[0].end = 4;
}

static void shard_begins_a_sequence_late(job *j)
{
    plan *p = j->plans[0];
    plan_action *a = action_at(p, find_list(p, "layers.0", OP_BACKWARD_WEIGHT, 0, 0));
    a->sequence_begin++;
    a->sequence_count--;
}

static void uses_are_added_backwards(job *j)
{
    plan *p = j->plans[0];
    int n = 0;
    while (action_at(p, find_node(p, OP_TREE_ADD, n))->microbatch >= 0) n++;
    swap_first_two(own_map(p, find_node(p, OP_TREE_ADD, n)));
}

typedef struct mistake {
    const char *name;
    void (*make)(job *j);
    bool zero, strict;
    op_recompute recompute;
    const char *says[3]; // all of them stand in the message
} mistake;

static const mistake mistakes[] = {
    {"a sum that does not wait for its gradients",
     sum_does_not_wait,
     false,
     false,
     RECOMPUTE_NONE,
     {"rank 1, action", "all_reduce of gradients, layers.1, dp", "grad.layers.1."}},
    {"a sum that waits for an earlier micro-batch only",
     sum_waits_for_an_earlier_micro_batch,
     false,
     false,
     RECOMPUTE_NONE,
     {"backward_weight of layers.0, micro-batch 1", "gradients, layers.0"}},
    {"a norm that does not wait for the sums",
     norm_does_not_wait,
     false,
     false,
     RECOMPUTE_NONE,
     {"grad_norm", "all_reduce of gradients", "nothing says which comes first"}},
    {"a forward that does not wait for gathered weights",
     forward_does_not_wait_for_weights,
     true,
     false,
     RECOMPUTE_NONE,
     {"all_gather of layers.1", "of the next step", "forward of layers.1"}},
    {"a batch that is copied while it is read",
     batch_is_copied_while_it_is_read,
     false,
     false,
     RECOMPUTE_NONE,
     {"copy of the batch) of the next step", "rank 0"}},
    {"a step that begins before its batch is there",
     step_begins_before_its_batch,
     false,
     false,
     RECOMPUTE_NONE,
     {"copy of the batch", "rank 0"}},
    {"results that are read before they are made",
     results_are_read_too_early,
     false,
     false,
     RECOMPUTE_NONE,
     {"read-back", "step"}},
    {"a decision before the sums",
     decision_does_not_wait,
     false,
     false,
     RECOMPUTE_NONE,
     {"sums of the step", "step_decide", "rank 1"}},
    {"a gather that does not wait for the update",
     gather_does_not_wait,
     true,
     false,
     RECOMPUTE_NONE,
     {"adamw of grad.layers.1.up", "all_gather of layers.1.up"}},
    {"an optimizer on another lane",
     optimizer_stands_on_another_lane,
     false,
     false,
     RECOMPUTE_NONE,
     {"adamw of grad.", "nothing says which comes first"}},
    {"buckets swapped on one rank",
     buckets_are_swapped_on_one_rank,
     false,
     false,
     RECOMPUTE_NONE,
     {"rank 0, action", "gradients, layers.1 and gradients, layers.0"}},
    {"a bucket skipped on one rank",
     bucket_is_skipped_on_one_rank,
     false,
     false,
     RECOMPUTE_NONE,
     {"gradients, layers.0", "rank 1, action"}},
    {"the last sum skipped on one rank",
     last_sum_is_skipped_on_one_rank,
     false,
     false,
     RECOMPUTE_NONE,
     {"sums of the step", "waits for rank 1 for ever"}},
    {"a bucket skipped on all ranks",
     bucket_is_skipped,
     false,
     false,
     RECOMPUTE_NONE,
     {"lacks sequences [4, 8) of layers.0", "grad.layers.0."}},
    {"a bucket reduced twice",
     bucket_is_reduced_twice,
     false,
     false,
     RECOMPUTE_NONE,
     {"gradients, layers.0", "has given already", "grad.layers.0."}},
    {"another count on one rank",
     count_differs,
     false,
     false,
     RECOMPUTE_NONE,
     {"gradients, layers.1", "elements of tensor 2"}},
    {"another type on one rank",
     type_differs,
     false,
     false,
     RECOMPUTE_NONE,
     {"fp32 and int32", "gradients, layers.1"}},
    {"a bucket that lacks a tensor on one rank",
     bucket_lacks_a_tensor,
     false,
     false,
     RECOMPUTE_NONE,
     {"tensors and", "gradients, layers.1"}},
    {"a tensor twice in a bucket",
     bucket_has_one_tensor_twice,
     false,
     false,
     RECOMPUTE_NONE,
     {"gradients, layers.1"}},
    {"an item that reaches out of its tensor",
     item_reaches_out_of_its_tensor,
     true,
     false,
     RECOMPUTE_NONE,
     {"all_gather of layers.0.down"}},
    {"a piece that is the neighbour's",
     piece_is_the_neighbours,
     true,
     false,
     RECOMPUTE_NONE,
     {"rank 1, action", "layers.0.down", "not in place for member 1"}},
    {"a piece from elsewhere",
     piece_comes_from_elsewhere,
     true,
     false,
     RECOMPUTE_NONE,
     {"rank 0, action", "all_gather of layers.0.down", "those of moments"}},
    {"a piece of a sum that goes to another's rows",
     piece_of_the_sum_goes_elsewhere,
     true,
     false,
     RECOMPUTE_NONE,
     {"grad.layers.0.down", "rank 1"}},
    {"a group that there is not",
     group_is_none,
     false,
     false,
     RECOMPUTE_NONE,
     {"there is no group 7", "gradients, head"}},
    {"a wait for what comes later",
     wait_is_for_what_comes_later,
     false,
     false,
     RECOMPUTE_NONE,
     {"forward of head", "gradients, layers.1", "not before it"}},
    {"groups that wait for each other",
     groups_wait_for_each_other,
     false,
     false,
     RECOMPUTE_NONE,
     {"wait for each other for ever", "gradients, layers.1", "gradients, layers.0"}},
    {"activations that share bytes",
     activations_share_bytes,
     false,
     false,
     RECOMPUTE_NONE,
     {"layers.0/", "rank 0"}},
    {"a workspace over a gradient",
     workspace_lies_over_a_gradient,
     false,
     false,
     RECOMPUTE_NONE,
     {"workspace.layers.0.matmul_dw", "grad.layers.0.out"}},
    {"run tensors that share bytes",
     run_tensors_share_bytes,
     false,
     false,
     RECOMPUTE_NONE,
     {"m.layers.0.up", "v.layers.0.up", "rank 1"}},
    {"a tensor outside the arena",
     tensor_lies_outside,
     false,
     false,
     RECOMPUTE_NONE,
     {"grad.layers.0.up", "outside the arena"}},
    {"a tensor too small for what is written",
     tensor_is_too_small,
     false,
     false,
     RECOMPUTE_NONE,
     {"layers.1/swiglu.a", "forward of layers.1"}},
    {"an accumulator that starts again",
     accumulator_starts_again,
     false,
     false,
     RECOMPUTE_NONE,
     {"micro-batch 1", "starts grad.layers.1", "is lost"}},
    {"an accumulator that goes on from the step before",
     accumulator_goes_on_from_the_step_before,
     false,
     false,
     RECOMPUTE_NONE,
     {"backward_weight of layers.1, micro-batch 0", "grad.layers.1"}},
    {"a micro-batch done twice",
     micro_batch_is_done_twice,
     false,
     false,
     RECOMPUTE_NONE,
     {"rank 1", "a second time"}},
    {"a weight gradient that is skipped",
     weight_gradient_is_skipped,
     false,
     false,
     RECOMPUTE_NONE,
     {"lacks sequences [6, 8) of layers.1"}},
    {"a tied embedding that gives nothing",
     tied_embedding_gives_nothing,
     false,
     false,
     RECOMPUTE_NONE,
     {"grad.embed.table", "lacks sequences [0, 8) of embed"}},
    {"ranks that take the same sequences",
     ranks_take_the_same_sequences,
     false,
     false,
     RECOMPUTE_NONE,
     {"[0, 4)", "given already"}},
    {"a forward that is skipped",
     forward_is_skipped,
     false,
     false,
     RECOMPUTE_NONE,
     {"layers.0/", "micro-batch 1"}},
    {"a recomputation that is skipped",
     recomputation_is_skipped,
     false,
     false,
     RECOMPUTE_FULL,
     {"layers.0/", "rank 0"}},
    {"a backward before its forward",
     backward_comes_before_forward,
     false,
     false,
     RECOMPUTE_NONE,
     {"backward_input of layers.1", "nothing has written"}},
    {"an optimizer that takes another gradient",
     optimizer_takes_another_gradient,
     false,
     false,
     RECOMPUTE_NONE,
     {"rank 0", "adamw"}},
    {"an optimizer that leaves a weight out",
     optimizer_leaves_a_weight_out,
     false,
     false,
     RECOMPUTE_NONE,
     {"rank 1", "up to date"}},
    {"a weight that is updated twice",
     weight_is_updated_twice,
     false,
     false,
     RECOMPUTE_NONE,
     {"has updated already", "rank 1"}},
    {"updated rows that are not gathered",
     updated_rows_are_not_gathered,
     true,
     false,
     RECOMPUTE_NONE,
     {"layers.1.qkv", "up to date"}},
    {"a normaliser of own tokens",
     tokens_are_not_summed,
     false,
     false,
     RECOMPUTE_NONE,
     {"the count of tokens lacks", "[4, 8)"}},
    {"a loss of own sequences",
     losses_are_not_summed,
     false,
     false,
     RECOMPUTE_NONE,
     {"lacks", "[4, 8)"}},
    {"a norm of own rows",
     norm_is_of_own_rows,
     true,
     false,
     RECOMPUTE_NONE,
     {"the norm lacks", "step_decide"}},
    {"a norm that leaves a weight out",
     norm_leaves_a_weight_out,
     false,
     false,
     RECOMPUTE_NONE,
     {"the norm lacks", "rank 0"}},
    {"a norm that counts a weight on every rank",
     norm_counts_a_weight_on_every_rank,
     true,
     false,
     RECOMPUTE_NONE,
     {"the norm", "sums of the step"}},
    {"strict: a sum in no order",
     sum_has_no_order,
     false,
     true,
     RECOMPUTE_NONE,
     {"no fixed order", "gradients, layers.1"}},
    {"strict: shards joined the wrong way round",
     shards_are_joined_the_wrong_way_round,
     false,
     true,
     RECOMPUTE_NONE,
     {"tree_add of grad.", "strict order"}},
    {"strict: a leaf of other shards",
     leaf_is_of_other_shards,
     false,
     true,
     RECOMPUTE_NONE,
     {"rank 1", "shards [0, 4)", "not what it holds"}},
    {"strict: a shard that begins a sequence late",
     shard_begins_a_sequence_late,
     false,
     true,
     RECOMPUTE_NONE,
     {"backward_weight of layers.0, micro-batch 0", "strict order"}},
    {"strict: uses added backwards",
     uses_are_added_backwards,
     false,
     true,
     RECOMPUTE_NONE,
     {"tree_add", "embed.table"}},
};

static void each_mistake_is_found_and_named(void **state)
{
    (void)state;
    int missed = 0;
    for (int64_t i = 0; i < COUNT_OF(mistakes); i++) {
        const mistake *m = &mistakes[i];
        // Strict: 16 sequences over 8 shards, so that a micro-batch of 2 is a shard; of two ranks any
        // sum would be in order.
        const job_settings s = {.dp = m->strict ? 4 : 2,
                                .zero = m->zero,
                                .strict = m->strict,
                                .recompute = m->recompute,
                                .sequences = m->strict ? 16 : 8,
                                .micro_batch = 2};
        arena *a = NULL;
        job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(job_make(a, &s, &j), ST_OK);
        assert_int_equal(job_verify(&j, &v), ST_OK);
        m->make(&j);
        const status st = job_verify(&j, &v);
        bool named = st == ST_BROKEN_PLAN;
        for (int k = 0; k < 3 && named && m->says[k] != NULL; k++) {
            named = strstr(error_last()->text, m->says[k]) != NULL;
        }
        if (!named) {
            print_error("%s: %s\n", m->name, st == ST_OK ? "not found" : error_last()->text);
            missed++;
        }
        arena_destroy(a);
    }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_is_found_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
