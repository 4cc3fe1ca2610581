// Computes the optimizer's correct result from this run's own gradients and state: runs its program
// on the whole weight with the reference kernels.
#include "diagnose/bisect_internal.h"
#include "kernels/interpret.h"
#include "train/lr/lr.h"

#include <math.h>
#include <string.h>

// The row of bisect_state_names for a tensor of an optimizer's program; -1: none.
static int kind_of(const op_tensor *t)
{
    if (t->role == ROLE_WEIGHT) return 0;
    for (int i = 1; i < BISECT_STATES && t->role == ROLE_STATE; i++) {
        if (strcmp(t->name, bisect_state_names[i]) == 0) return i;
    }
    return -1;
}

static void step_put(const bisect *b, step_block *block)
{
    const step_device *d = &b->ranks[0]->results; // the sums have been compared
    block->host.step = b->step;
    block->host.seed = (uint64_t)b->r->train.seed;
    block->host.lr = lr_rate(b->r, b->step - 1);
    block->device.applied = b->applied;
    block->device.skip = d->skip;
    block->device.grad_factor = d->grad_factor;
}

static status program_run(const bisect *b, arena *a, int32_t weight, const double *grad,
                          double *const out[BISECT_STATES])
{
    const bisect_rank *ref = b->refs[REF_FP64] != NULL ? b->refs[REF_FP64] : b->refs[REF_FP32];
    const op_program *p = ref->plans.optimizer[weight];
    const int64_t count = bisect_state_elements(&ref->plans.whole->weights[weight]);
    const kern_hint hint = {.threads = 1};
    kern_context *kernels = NULL;
    TRY(kern_context_create(a, "ref", &hint, &kernels));
    const kern_interpret_config wanted = {
        .program = p, .bound = {{1, 1, 1, 1, 1}}, .context = kernels};
    kern_interpret *it = NULL;
    TRY(kern_interpret_create(a, &wanted, &it));
    step_put(b, kern_interpret_step(it));
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const int kind = kind_of(&p->tensors[t]);
        const bool is_grad = p->tensors[t].role == ROLE_WEIGHT_GRAD;
        if (p->tensors[t].view_of != TENSOR_NONE || (kind < 0 && !is_grad)) continue;
        const double *from = is_grad ? grad : b->state[weight] + kind * count;
        for (int64_t i = 0; i < count; i++) kern_interpret_put(it, t, i, from[i]);
    }
    TRY(kern_interpret_run(it, OP_FORWARD, false));
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const int kind = kind_of(&p->tensors[t]);
        for (int64_t i = 0; i < count && kind >= 0; i++) {
            out[kind][i] = kern_interpret_get(it, t, i);
        }
    }
    return ST_OK;
}

status bisect_update_expect(const bisect *b, int32_t weight, const double *grad,
                            double *const out[BISECT_STATES])
{
    arena *a = NULL;
    TRY(arena_create("expected update", 0, &a));
    const status st = program_run(b, a, weight, grad, out);
    arena_destroy(a);
    return st;
}
