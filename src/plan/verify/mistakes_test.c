// Classic mistakes in distributed training, planted one by one in sound plans. The verifier finds
// each before the start, and its message names the place. This test changes plans after
// plan_create. Mistakes that only show in a run have their tests with the contract between ranks
// and with bisect.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void swap_first_two(int32_t *map)
{
    const int32_t one = map[0];
    map[0] = map[1];
    map[1] = one;
}

// ---- the mistakes -------------------------------------------------------------------------------

static void sum_does_not_wait(sample_job *j)
{
    sample_forget_waits(j->plans[1], sample_find_comm(j->plans[1], COLLECTIVE_ALL_REDUCE,
                                                      "gradients, layers.1", 0));
}

static void sum_waits_for_an_earlier_micro_batch(sample_job *j)
{
    plan *p = j->plans[0];
    const int32_t sum = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.0", 0);
    p->waits[sample_action(p, sum)->waits_begin] =
        sample_find_list(p, "layers.0", OP_BACKWARD_WEIGHT, 0, 0);
}

static void norm_does_not_wait(sample_job *j)
{
    sample_forget_waits(j->plans[0], sample_find_node(j->plans[0], OP_GRAD_NORM, 0));
}

static void forward_does_not_wait_for_weights(sample_job *j)
{
    sample_forget_waits(j->plans[1], sample_find_list(j->plans[1], "layers.1", OP_FORWARD, 0, 0));
}

static void batch_is_copied_while_it_is_read(sample_job *j)
{
    sample_forget_waits(j->plans[0], sample_find_kind(j->plans[0], ACTION_COPY));
}

static void step_begins_before_its_batch(sample_job *j)
{
    sample_forget_waits(j->plans[0], sample_find_node(j->plans[0], OP_STEP_BEGIN, 0));
}

static void results_are_read_too_early(sample_job *j)
{
    sample_forget_waits(j->plans[0], sample_find_kind(j->plans[0], ACTION_READBACK));
}

static void decision_does_not_wait(sample_job *j)
{
    sample_forget_waits(j->plans[1], sample_find_node(j->plans[1], OP_STEP_DECIDE, 0));
}

static void gather_does_not_wait(sample_job *j)
{
    plan *p = j->plans[0];
    const int32_t gather = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "layers.1.up", 0);
    p->waits[sample_action(p, gather)->waits_begin] = sample_find_node(p, OP_STEP_DECIDE, 0);
}

static void optimizer_stands_on_another_stream(sample_job *j)
{
    sample_action(j->plans[0], sample_find_node(j->plans[0], OP_ADAMW, 3))->stream = STREAM_COPY;
}

static void buckets_are_swapped_on_one_rank(sample_job *j)
{
    plan *p = j->plans[1];
    sample_swap_comms(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0),
                      sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.0", 0));
}

static void bucket_is_skipped_on_one_rank(sample_job *j)
{
    sample_leave_out(j->plans[1], sample_find_comm(j->plans[1], COLLECTIVE_ALL_REDUCE,
                                                   "gradients, layers.0", 0));
}

static void last_sum_is_skipped_on_one_rank(sample_job *j)
{
    sample_leave_out(j->plans[1],
                     sample_find_comm(j->plans[1], COLLECTIVE_ALL_REDUCE, "sums of the step", 0));
}

static void bucket_is_skipped(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        sample_leave_out(j->plans[r], sample_find_comm(j->plans[r], COLLECTIVE_ALL_REDUCE,
                                                       "gradients, layers.0", 0));
    }
}

static void bucket_is_reduced_twice(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_action *other =
            sample_action(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, embed", 0));
        other->comm =
            sample_action(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.0", 0))
                ->comm;
    }
}

static void count_differs(sample_job *j)
{
    plan *p = j->plans[1];
    sample_item(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0), 2)
        ->count -= 8;
}

static void type_differs(sample_job *j)
{
    plan *p = j->plans[1];
    sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0))->type =
        DTYPE_I32;
}

static void bucket_lacks_a_tensor(sample_job *j)
{
    plan *p = j->plans[1];
    sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0))
        ->items_count--;
}

static void bucket_has_one_tensor_twice(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        const int32_t sum = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0);
        *sample_item(p, sum, 1) = *sample_item(p, sum, 5);
        // Equal shapes: norm1 and norm2.
    }
}

static void item_reaches_out_of_its_tensor(sample_job *j)
{
    plan *p = j->plans[1]; // the last
    sample_item(p, sample_find_comm(p, COLLECTIVE_ALL_GATHER, "layers.0.down", 0), 0)->in_offset +=
        64;
}

static void piece_is_the_neighbours(sample_job *j)
{
    plan *p = j->plans[1];
    sample_item(p, sample_find_comm(p, COLLECTIVE_ALL_GATHER, "layers.0.down", 0), 0)->in_offset =
        0;
}

static void piece_comes_from_elsewhere(sample_job *j)
{
    plan *p = j->plans[1];
    plan_comm_item *item =
        sample_item(p, sample_find_comm(p, COLLECTIVE_ALL_GATHER, "layers.0.down", 0), 0);
    item->in = plan_run_ref(plan_table_find(p->run, "m.layers.0.down"));
    item->in_offset = 0;
}

static void piece_of_the_sum_goes_elsewhere(sample_job *j)
{
    plan *p = j->plans[1];
    sample_item(p, sample_find_comm(p, COLLECTIVE_REDUCE_SCATTER, "gradients, layers.0.down", 0), 0)
        ->out_offset = 0;
}

static void group_is_none(sample_job *j)
{
    sample_comm(j->plans[0],
                sample_find_comm(j->plans[0], COLLECTIVE_ALL_REDUCE, "gradients, head", 0))
        ->group = 7;
}

static void wait_is_for_what_comes_later(sample_job *j)
{
    plan *p = j->plans[0];
    sample_wait_for(p, sample_find_list(p, "head", OP_FORWARD, 0, 0),
                    sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0));
}

// Two groups of the same ranks: each rank does the other group's operation first.
static void groups_wait_for_each_other(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        int32_t row = 0;
        const plan_group other = plan_group_of(&j->mesh, MESH_AXIS(AXIS_DP), GROUP_PAIR);
        assert_int_equal(plan_table_group(p->run, &other, &row), ST_OK);
        const int32_t one = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0);
        const int32_t two = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.0", 0);
        if (r == 0) { // here the second one goes first
            const plan_action first = *sample_action(p, one);
            const int32_t wait = p->waits[sample_action(p, two)->waits_begin];
            p->waits[first.waits_begin] = wait;
            *sample_action(p, one) = *sample_action(p, two);
            *sample_action(p, two) = first;
            // both are at the place of the later one
            const plan_action moved = *sample_action(p, one);
            for (int32_t i = one; i + 1 < two; i++) p->actions[i] = p->actions[i + 1];
            p->actions[two - 1] = moved;
            for (int64_t i = 0; i < p->wait_count; i++) {
                if (p->waits[i] > one && p->waits[i] < two) p->waits[i]--;
            }
        }
        const int32_t second = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.0", 0);
        sample_comm(p, second)->group = row;
        sample_action(p, second)->stream = STREAM_GROUPS + row;
        const int32_t first = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0);
        sample_wait_for(p, r == 0 ? first : second, r == 0 ? second : first);
        sample_wait_for(p, sample_find_node(p, OP_GRAD_NORM, 0), second);
    }
}

static void activations_share_bytes(sample_job *j)
{
    plan *p = j->plans[0];
    sample_tensor(p, "layers.0/matmul.y")->offset =
        sample_tensor(p, "layers.0/attention.y")->offset;
}

static void workspace_lies_over_a_gradient(sample_job *j)
{
    plan *p = j->plans[0];
    sample_tensor(p, "workspace.layers.0.matmul_dw")->offset =
        sample_tensor(p, "grad.layers.0.out")->offset;
}

static void run_tensors_share_bytes(sample_job *j)
{
    plan *p = j->plans[1];
    sample_tensor(p, "m.layers.0.up")->offset = sample_tensor(p, "v.layers.0.up")->offset + 64;
}

static void tensor_lies_outside(sample_job *j)
{
    plan *p = j->plans[1];
    sample_tensor(p, "grad.layers.0.up")->offset = p->transient_bytes - 64;
}

static void tensor_is_too_small(sample_job *j)
{
    sample_tensor(j->plans[0], "layers.1/swiglu.a")->bytes /= 2;
}

static void accumulator_starts_again(sample_job *j)
{
    plan *p = j->plans[0];
    sample_action(p, sample_find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 1, 0))->accumulate = false;
}

static void accumulator_goes_on_from_the_step_before(sample_job *j)
{
    plan *p = j->plans[0];
    sample_action(p, sample_find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 0, 0))->accumulate = true;
}

static void micro_batch_is_done_twice(sample_job *j)
{
    plan *p = j->plans[1];
    for (int32_t i = 0; i < p->action_count; i++) {
        if (p->actions[i].microbatch == 1) p->actions[i].microbatch = 0;
    }
}

static void weight_gradient_is_skipped(sample_job *j)
{
    plan *p = j->plans[1];
    sample_leave_out(p, sample_find_list(p, "layers.1", OP_BACKWARD_WEIGHT, 1, 0));
}

static void tied_embedding_gives_nothing(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        for (int32_t i = 0; i < 2; i++) {
            sample_leave_out(j->plans[r],
                             sample_find_list(j->plans[r], "embed", OP_BACKWARD_WEIGHT, i, 0));
        }
    }
}

static void ranks_take_the_same_sequences(sample_job *j)
{
    j->plans[1]->first_sequence = 0;
}

static void forward_is_skipped(sample_job *j)
{
    sample_leave_out(j->plans[0], sample_find_list(j->plans[0], "layers.0", OP_FORWARD, 1, 0));
}

static void recomputation_is_skipped(sample_job *j)
{
    sample_leave_out(j->plans[0], sample_find_list(j->plans[0], "layers.0", OP_RECOMPUTE, 0, 0));
}

static void backward_comes_before_forward(sample_job *j)
{
    plan *p = j->plans[0];
    const int32_t back = sample_find_list(p, "layers.1", OP_BACKWARD_INPUT, 0, 0);
    const int32_t other = sample_find_list(p, "layers.1", OP_FORWARD, 0, 0);
    const plan_action one = *sample_action(p, back);
    *sample_action(p, back) = *sample_action(p, other);
    *sample_action(p, other) = one;
}

static void optimizer_takes_another_gradient(sample_job *j)
{
    plan *p = j->plans[0];
    const int32_t other = sample_find_node(p, OP_ADAMW, 6); // norm2, of the shape of norm1
    sample_own_map(p, sample_find_node(p, OP_ADAMW, 1))[0] =
        p->bindings[sample_action(p, other)->binding].tensor[0];
}

static void optimizer_leaves_a_weight_out(sample_job *j)
{
    sample_leave_out(j->plans[1], sample_find_node(j->plans[1], OP_ADAMW, 4));
}

static void weight_is_updated_twice(sample_job *j)
{
    plan *p = j->plans[1];
    *sample_action(p, sample_find_node(p, OP_ADAMW, 4)) =
        *sample_action(p, sample_find_node(p, OP_ADAMW, 3));
}

static void updated_rows_are_not_gathered(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        sample_leave_out(j->plans[r],
                         sample_find_comm(j->plans[r], COLLECTIVE_ALL_GATHER, "layers.1.qkv", 0));
    }
}

static void tokens_are_not_summed(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c =
            sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0));
        c->items_begin++;
        c->items_count--;
    }
}

static void losses_are_not_summed(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        sample_leave_out(j->plans[r], sample_find_comm(j->plans[r], COLLECTIVE_ALL_REDUCE,
                                                       "sums of the step", 0));
    }
}

static void sum_of_the_loss_goes_elsewhere(sample_job *j)
{
    plan *p = j->plans[1];
    const int32_t sums = sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0);
    sample_item(p, sums, 1)->out =
        sample_item(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, embed", 0), 0)->out;
}

static void norm_is_of_own_rows(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0))
            ->items_count--;
    }
}

static void norm_leaves_a_weight_out(sample_job *j)
{
    sample_leave_out(j->plans[0], sample_find_node(j->plans[0], OP_GRAD_NORM, 2));
}

static void norm_counts_a_weight_on_every_rank(sample_job *j)
{
    // Rank 1 has no norm of uncut weights; now it has rank 0's instead of one of its rows.
    plan *p = j->plans[1];
    const plan *first = j->plans[0];
    for (int n = 0;; n++) {
        const plan_action *theirs = &first->actions[sample_find_node(first, OP_GRAD_NORM, n)];
        const plan_binding *b = &first->bindings[theirs->binding];
        const plan_tensor *t = plan_tensor_at(first, b->tensor[0]);
        if (t->is_part) continue;
        const int32_t index = sample_find_node(p, OP_GRAD_NORM, 1);
        sample_own_map(p, index)[0] = (int32_t)(sample_tensor(p, t->name) - p->tensors);
        p->bindings[sample_action(p, index)->binding].program = b->program;
        return;
    }
}

static void sum_has_no_order(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c =
            sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "gradients, layers.1", 0));
        c->leaves_count = 0;
    }
}

static void shards_are_joined_the_wrong_way_round(sample_job *j)
{
    plan *p = j->plans[0];
    swap_first_two(sample_own_map(p, sample_find_node(p, OP_TREE_ADD, 0)));
}

static void leaf_is_of_other_shards(sample_job *j)
{
    plan *p = j->plans[1];
    p->leaves[0].begin = 0;
    p->leaves[0].end = 4;
}

static void shard_begins_a_sequence_late(sample_job *j)
{
    plan *p = j->plans[0];
    plan_action *a = sample_action(p, sample_find_list(p, "layers.0", OP_BACKWARD_WEIGHT, 0, 0));
    a->sequence_begin++;
    a->sequence_count--;
}

static void uses_are_added_backwards(sample_job *j)
{
    plan *p = j->plans[0];
    int n = 0;
    while (sample_action(p, sample_find_node(p, OP_TREE_ADD, n))->microbatch >= 0) n++;
    swap_first_two(sample_own_map(p, sample_find_node(p, OP_TREE_ADD, n)));
}

// ---- mistakes in pipelines ----------------------------------------------------------------------

static const char ahead[] = "activations, stage 0 to 1, micro-batch ";
static const char back[] = "gradients, stage 1 to 0, micro-batch ";

enum { LAST = 7 }; // micro-batch: buffers have been used before
static int32_t find_message(const plan *p, op_collective op, const char *which, int32_t microbatch)
{
    char name[PLAN_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s%d", which, microbatch);
    return sample_find_comm(p, op, name, 0);
}

static void sends_are_swapped(sample_job *j)
{
    plan *p = j->plans[0];
    sample_swap_comms(p, find_message(p, COLLECTIVE_SEND, ahead, 1),
                      find_message(p, COLLECTIVE_SEND, ahead, 2));
}

static void send_is_left_out(sample_job *j)
{
    sample_leave_out(j->plans[1], find_message(j->plans[1], COLLECTIVE_SEND, back, LAST));
}

static void message_is_half(sample_job *j)
{
    plan *p = j->plans[1];
    sample_item(p, find_message(p, COLLECTIVE_RECEIVE, ahead, 1), 0)->count /= 2;
}

static void message_goes_to_oneself(sample_job *j)
{
    plan *p = j->plans[0];
    plan_comm *c = sample_comm(p, find_message(p, COLLECTIVE_SEND, ahead, 0));
    c->peer = 1 - c->peer;
}

static void message_takes_the_other_link(sample_job *j)
{
    plan *p = j->plans[0];
    plan_comm *c = sample_comm(p, find_message(p, COLLECTIVE_SEND, ahead, 2));
    c->group = sample_comm(p, find_message(p, COLLECTIVE_RECEIVE, back, 0))->group;
}

static void send_does_not_wait(sample_job *j)
{
    sample_forget_waits(j->plans[0], find_message(j->plans[0], COLLECTIVE_SEND, ahead, LAST));
}

static void stage_does_not_wait_for_its_input(sample_job *j)
{
    plan *p = j->plans[1];
    sample_forget_waits(p, sample_find_list(p, "layers.2", OP_FORWARD, 0, 0));
}

static void input_comes_while_the_last_is_in_use(sample_job *j)
{
    sample_forget_waits(j->plans[1], find_message(j->plans[1], COLLECTIVE_RECEIVE, ahead, LAST));
}

static void gradient_comes_into_the_other_slot(sample_job *j)
{
    plan *p = j->plans[0];
    sample_item(p, find_message(p, COLLECTIVE_RECEIVE, back, 1), 0)->out =
        sample_item(p, find_message(p, COLLECTIVE_RECEIVE, back, 0), 0)->out;
}

static void stage_begins_a_layer_late(sample_job *j)
{
    for (int32_t i = 0; i < 4; i++) {
        plan *p = j->plans[1];
        sample_leave_out(p, sample_find_list(p, "layers.2", OP_FORWARD, i, 0));
    }
}

static void tied_weights_are_summed_apart(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        sample_leave_out(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "weights of two stages", 0));
    }
}

// Each rank waits until its message is received before it receives one.
static void links_stand_on_the_stream_that_computes(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        for (int32_t i = 0; i < p->action_count; i++) {
            if (p->actions[i].kind != ACTION_COMMUNICATE) continue;
            const op_collective op = p->comms[p->actions[i].comm].op;
            if (op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE)
                p->actions[i].stream = STREAM_COMPUTE;
        }
    }
}

static void loss_stays_on_the_last_stage(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        plan_comm *c =
            sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0));
        c->items_begin += 2; // the norm alone
        c->items_count -= 2;
    }
}

// comm can run the operation, but readers of a plan do not know what it writes.
static void sums_go_to_the_first_rank_alone(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0))->op =
            COLLECTIVE_REDUCE;
    }
}

static void norm_is_of_own_stage(sample_job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        plan *p = j->plans[r];
        sample_comm(p, sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "sums of the step", 0))
            ->items_count--;
    }
}

static void micro_batch_goes_backward_twice(sample_job *j)
{
    plan *p = j->plans[1];
    for (int32_t i = 0; i < p->action_count; i++) {
        plan_action *a = &p->actions[i];
        if (a->list == OP_BACKWARD_WEIGHT && a->layer >= 0 && a->microbatch == 2) a->microbatch = 1;
    }
}

enum { PLAIN, ZERO, STRICT, AGAIN, PIPE }; // AGAIN: activations are recomputed; PIPE: two stages

static void packed_weights_are_not_made(sample_job *j)
{
    plan *p = j->plans[1];
    sample_action(p, sample_find_list(p, "layers.1", OP_FORWARD, 0, 0))->fills = false;
}

static void packed_weights_lie_over_an_accumulator(sample_job *j)
{
    plan *p = j->plans[0];
    sample_tensor(p, "panels.matmul.layers.0/qkv")->offset =
        sample_tensor(p, "grad.layers.0.qkv")->offset;
}

typedef struct mistake {
    const char *name;
    void (*make)(sample_job *j);
    int with;         // zero, strict order or recomputation
    const char *says; // parts of the message
} mistake;

// Bars separate the parts of a message.
static const mistake mistakes[] = {
    {"a sum that does not wait for its gradients", sum_does_not_wait, PLAIN,
     "rank 1, action|all_reduce of gradients, layers.1, dp|grad.layers.1."},
    {"a sum that waits for an earlier micro-batch only", sum_waits_for_an_earlier_micro_batch,
     PLAIN, "backward_weight of layers.0, micro-batch 1|gradients, layers.0"},
    {"a norm that does not wait for the sums", norm_does_not_wait, PLAIN,
     "grad_norm|all_reduce of gradients|no wait orders them"},
    {"a forward that does not wait for gathered weights", forward_does_not_wait_for_weights, ZERO,
     "all_gather of layers.1|of the next step|forward of layers.1"},
    {"a batch that is copied while it is read", batch_is_copied_while_it_is_read, PLAIN,
     "copy of the batch) of the next step|rank 0"},
    {"a step that begins before its batch is there", step_begins_before_its_batch, PLAIN,
     "copy of the batch|rank 0"},
    {"results that are read before they are made", results_are_read_too_early, PLAIN,
     "read-back|step"},
    {"a decision before the sums", decision_does_not_wait, PLAIN,
     "sums of the step|step_decide|rank 1"},
    {"a gather that does not wait for the update", gather_does_not_wait, ZERO,
     "adamw of grad.layers.1.up|all_gather of layers.1.up"},
    {"an optimizer on another stream", optimizer_stands_on_another_stream, PLAIN,
     "adamw of grad.|no wait orders them"},
    {"buckets swapped on one rank", buckets_are_swapped_on_one_rank, PLAIN,
     "rank 0, action|gradients, layers.1 and gradients, layers.0"},
    {"a bucket skipped on one rank", bucket_is_skipped_on_one_rank, PLAIN,
     "gradients, layers.0|rank 1, action"},
    {"the last sum skipped on one rank", last_sum_is_skipped_on_one_rank, PLAIN,
     "sums of the step|waits for rank 1 for ever"},
    {"a bucket skipped on all ranks", bucket_is_skipped, PLAIN,
     "lacks sequences [4, 8) of layers.0|grad.layers.0."},
    {"a bucket reduced twice", bucket_is_reduced_twice, PLAIN,
     "gradients, layers.0|has given already|grad.layers.0."},
    {"another count on one rank", count_differs, PLAIN, "gradients, layers.1|elements of tensor 2"},
    {"another type on one rank", type_differs, PLAIN, "fp32 and int32|gradients, layers.1"},
    {"a bucket that lacks a tensor on one rank", bucket_lacks_a_tensor, PLAIN,
     "tensors and|gradients, layers.1"},
    {"a tensor twice in a bucket", bucket_has_one_tensor_twice, PLAIN, "gradients, layers.1"},
    {"an item that reaches out of its tensor", item_reaches_out_of_its_tensor, ZERO,
     "all_gather of layers.0.down"},
    {"a piece that is the neighbour's", piece_is_the_neighbours, ZERO,
     "rank 1, action|layers.0.down|not in place for member 1"},
    {"a piece from elsewhere", piece_comes_from_elsewhere, ZERO,
     "rank 0, action|all_gather of layers.0.down|those of moments"},
    {"a piece of a sum that goes to another's rows", piece_of_the_sum_goes_elsewhere, ZERO,
     "grad.layers.0.down|rank 1"},
    {"a group that there is not", group_is_none, PLAIN, "there is no group 7|gradients, head"},
    {"a wait for what comes later", wait_is_for_what_comes_later, PLAIN,
     "forward of head|gradients, layers.1|not before it"},
    {"groups that wait for each other", groups_wait_for_each_other, PLAIN,
     "ranks wait for each other for ever|gradients, layers.1|gradients, layers.0"},
    {"activations that share bytes", activations_share_bytes, PLAIN, "layers.0/|rank 0"},
    {"a workspace over a gradient", workspace_lies_over_a_gradient, PLAIN,
     "workspace.layers.0.matmul_dw|grad.layers.0.out"},
    {"run tensors that share bytes", run_tensors_share_bytes, PLAIN,
     "m.layers.0.up|v.layers.0.up|rank 1"},
    {"a tensor outside the arena", tensor_lies_outside, PLAIN,
     "grad.layers.0.up|outside the arena"},
    {"a tensor too small for what is written", tensor_is_too_small, PLAIN,
     "layers.1/swiglu.a|forward of layers.1"},
    {"packed weights that no action makes", packed_weights_are_not_made, PLAIN,
     "forward of layers.1, micro-batch 0|panels.matmul.layers.1/|no action has written"},
    {"packed weights over an accumulator", packed_weights_lie_over_an_accumulator, PLAIN,
     "panels.matmul.layers.0/qkv|grad.layers.0.qkv"},
    {"an accumulator that starts again", accumulator_starts_again, PLAIN,
     "micro-batch 1|starts grad.layers.1|is lost"},
    {"an accumulator that goes on from the step before", accumulator_goes_on_from_the_step_before,
     PLAIN, "backward_weight of layers.1, micro-batch 0|grad.layers.1"},
    {"a micro-batch done twice", micro_batch_is_done_twice, PLAIN, "rank 1|a second time"},
    {"a weight gradient that is skipped", weight_gradient_is_skipped, PLAIN,
     "lacks sequences [6, 8) of layers.1"},
    {"a tied embedding that gives nothing", tied_embedding_gives_nothing, PLAIN,
     "grad.embed.table|lacks sequences [0, 8) of embed"},
    {"ranks that take the same sequences", ranks_take_the_same_sequences, PLAIN,
     "[0, 4)|given already"},
    {"a forward that is skipped", forward_is_skipped, PLAIN, "layers.0/|micro-batch 1"},
    {"a recomputation that is skipped", recomputation_is_skipped, AGAIN, "layers.0/|rank 0"},
    {"a backward before its forward", backward_comes_before_forward, PLAIN,
     "backward_input of layers.1|no action has written"},
    {"an optimizer that takes another gradient", optimizer_takes_another_gradient, PLAIN,
     "rank 0|adamw"},
    {"an optimizer that leaves a weight out", optimizer_leaves_a_weight_out, PLAIN,
     "rank 1|up to date"},
    {"a weight that is updated twice", weight_is_updated_twice, PLAIN,
     "has updated already|rank 1"},
    {"updated rows that are not gathered", updated_rows_are_not_gathered, ZERO,
     "layers.1.qkv|up to date"},
    {"a normaliser of own tokens", tokens_are_not_summed, PLAIN,
     "the count of tokens lacks|[4, 8)"},
    {"a loss of own sequences", losses_are_not_summed, PLAIN, "lacks|[4, 8)"},
    {"a sum of losses that goes elsewhere", sum_of_the_loss_goes_elsewhere, PLAIN,
     "rank 1, action|all_reduce of sums of the step|grad.embed.table"},
    {"a norm of own rows", norm_is_of_own_rows, ZERO, "the norm lacks|step_decide"},
    {"a norm that leaves a weight out", norm_leaves_a_weight_out, PLAIN, "the norm lacks|rank 0"},
    {"a norm that counts a weight on every rank", norm_counts_a_weight_on_every_rank, ZERO,
     "the norm|sums of the step"},
    {"strict: a sum in no order", sum_has_no_order, STRICT, "no fixed order|gradients, layers.1"},
    {"strict: shards joined the wrong way round", shards_are_joined_the_wrong_way_round, STRICT,
     "tree_add of grad.|strict order"},
    {"strict: a leaf of other shards", leaf_is_of_other_shards, STRICT,
     "rank 1|shards [0, 4)|not what it holds"},
    {"strict: a shard that begins a sequence late", shard_begins_a_sequence_late, STRICT,
     "backward_weight of layers.0, micro-batch 0|strict order"},
    {"strict: uses added backwards", uses_are_added_backwards, STRICT, "tree_add|embed.table"},
    {"sends that are swapped", sends_are_swapped, PIPE,
     "rank 0, action|send of activations, stage 0 to 1, micro-batch 2|rank 1, action|micro-batch 1"},
    {"a send that is left out", send_is_left_out, PIPE,
     "receive of gradients, stage 1 to 0, micro-batch 7|waits for rank 1 for ever"},
    {"a message of half the size", message_is_half, PIPE,
     "rank 1, action|receive of activations, stage 0 to 1, micro-batch 1|elements of tensor 0"},
    {"a message to oneself", message_goes_to_oneself, PIPE,
     "rank 0, action|stage 0 to 1, micro-batch 0|its peer is number 0"},
    {"a message on the other link", message_takes_the_other_link, PIPE,
     "activations, stage 0 to 1, micro-batch 2"},
    {"a send before there is anything", send_does_not_wait, PIPE,
     "rank 0|send of activations, stage 0 to 1, micro-batch 7|forward of layers.1"},
    {"a stage that does not wait for its input", stage_does_not_wait_for_its_input, PIPE,
     "rank 1|receive of activations, stage 0 to 1, micro-batch 0|forward of layers.2"},
    {"an input that comes while the last is in use", input_comes_while_the_last_is_in_use, PIPE,
     "rank 1|receive of activations, stage 0 to 1, micro-batch 7|of layers.2, micro-batch 5"},
    {"a gradient that comes into another slot", gradient_comes_into_the_other_slot, PIPE,
     "rank 0|layers.1, micro-batch"},
    {"a stage that begins a layer late", stage_begins_a_layer_late, PIPE,
     "rank 1|forward of layers.3|layers.2/"},
    {"tied weights that are summed apart", tied_weights_are_summed_apart, PIPE,
     "grad.embed.table|lacks sequences [0, 16) of"},
    {"links on the stream that computes", links_stand_on_the_stream_that_computes, PIPE,
     "ranks wait for each other for ever|rank 0, action|rank 1, action|send of"},
    {"a loss that stays on the last stage", loss_stays_on_the_last_stage, PIPE,
     "rank 0|the count of tokens lacks"},
    {"a norm of own stage", norm_is_of_own_stage, PIPE, "the norm lacks|step_decide"},
    {"an operation that plans do not have", sums_go_to_the_first_rank_alone, PIPE,
     "reduce of sums of the step|no plan has"},
    {"weight gradients of one micro-batch twice", micro_batch_goes_backward_twice, PIPE,
     "rank 1|micro-batch 1"},
};

static bool all_stand_in(const char *message, const char *parts)
{
    while (*parts != '\0') {
        char part[128];
        const size_t length = strcspn(parts, "|");
        assert_true(length < sizeof(part));
        memcpy(part, parts, length);
        part[length] = '\0';
        if (strstr(message, part) == NULL) return false;
        parts += length + (parts[length] == '|' ? 1 : 0);
    }
    return true;
}

static void each_mistake_is_found_and_named(void **state)
{
    (void)state;
    int missed = 0;
    for (int64_t i = 0; i < COUNT_OF(mistakes); i++) {
        const mistake *m = &mistakes[i];
        // Strict order uses 16 sequences over 8 shards, so that a micro-batch of 2 is a shard, and
        // more than two ranks, because the sum of two is always in order.
        const bool is_pipe = m->with == PIPE, is_strict = m->with == STRICT;
        const sample_settings s = {.dp = is_strict ? 4
                                         : is_pipe ? 1
                                                   : 2,
                                   .pp = is_pipe ? 2 : 1,
                                   .schedule = "1f1b",
                                   .layers = is_pipe ? 4 : 2,
                                   .stages = {is_pipe ? 2 : 0, 2},
                                   .zero = m->with == ZERO,
                                   .strict = is_strict,
                                   .recompute = m->with == AGAIN ? RECOMPUTE_FULL : RECOMPUTE_NONE,
                                   .sequences = is_strict || is_pipe ? 16 : 8,
                                   .micro_batch = 2};
        arena *a = NULL;
        sample_job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &j), ST_OK);
        assert_int_equal(sample_verify(&j, &v), ST_OK);
        m->make(&j);
        const status st = sample_verify(&j, &v);
        const bool named = st == ST_BROKEN_PLAN && all_stand_in(error_last()->text, m->says);
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
