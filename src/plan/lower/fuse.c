// Fusion. A GEMM and the element-wise operation that follows it on its result become one launch, so
// the result is still in cache when it is read:
//
//   h = x w^T  |  a = gelu(h)        two launches, h goes to memory and comes back
//   h = x w^T, a = gelu(h)           one launch: each tile of h is processed when it is done
//
// Fusion has two conditions. The backend must support the pair: it is asked once for each pair of a
// program, by shapes (plan_fuses_fn). And the second operation must not write bytes that the first
// still reads, which depends on offsets, so each binding is checked after memory is assigned. The
// bits are those of two launches. An action that has only one of the two operations launches it
// alone.
#include "plan/access.h"
#include "plan/lower/lower.h"

// The byte range of one tensor, comparable before run tensors have offsets: ranges of different run
// tensors never overlap.
typedef struct stretch {
    int32_t run_ref; // -1: transient
    int64_t begin, end;
} stretch;

static stretch stretch_of_ref(const plan *p, int32_t ref)
{
    int64_t within = 0;
    const int32_t owner = plan_access_owner(p, ref, &within);
    const bool is_run = plan_ref_is_run(owner);
    const plan_tensor *t = plan_tensor_at(p, owner);
    const int64_t begin = is_run ? 0 : t->offset;
    return (stretch){is_run ? owner : -1, begin + within, begin + t->bytes};
}

// The byte range of the whole tensor that `t` is a view of; empty if no tensor of the plan stands
// for it.
static stretch stretch_of(const plan *p, const plan_binding *b, tensor_id t)
{
    const tensor_id owner = op_owner(b->program, t).id;
    if (owner == TENSOR_NONE || b->tensor[owner] == -1) return (stretch){-1, 0, 0};
    return stretch_of_ref(p, b->tensor[owner]);
}

static bool overlap(stretch a, stretch b)
{
    return a.run_ref == b.run_ref && a.begin < b.end && b.begin < a.end;
}

static bool begin_together(stretch a, stretch b)
{
    return a.run_ref == b.run_ref && a.begin == b.begin && a.begin < a.end && b.begin < b.end;
}

// True if the second operation's result overlaps no bytes that the first one reads while it writes
// its own result.
static bool lies_apart(const plan *p, const plan_binding *b, int32_t list, int64_t at)
{
    const op_node *first = &b->program->lists[list].nodes[at], *second = first + 1;
    const stretch made = stretch_of(p, b, first->out[0]), out = stretch_of(p, b, second->out[0]);
    for (int i = 0; i < OP_MAX_IN; i++) {
        const stretch in = stretch_of(p, b, first->in[i]);
        if (!begin_together(in, made) && overlap(out, in))
            return false; // otherwise it continues in its result
    }
    const int32_t *const held[] = {b->workspace[list], b->packed[list]};
    for (int i = 0; i < COUNT_OF(held); i++) {
        const bool is_there = held[i] != NULL && held[i][at] >= 0;
        if (is_there && overlap(out, stretch_of_ref(p, held[i][at]))) return false;
    }
    return (begin_together(out, made) && out.end == made.end) || !overlap(out, made);
}

// The backend's answers for a program. They hold for all bindings, which have the same shapes.
typedef struct answers {
    const op_program *program;
    bool *of[OP_LIST_COUNT]; // [node]
} answers;

static bool takes_result(const op_node *first, const op_node *second)
{
    const int at = op_tiled_input(second->code);
    return at >= 0 && second->in[at] == first->out[0];
}

static status program_ask(arena *a, const plan_request *r, const plan *p, answers *out)
{
    const extent_binding bound = plan_bound(p, p->micro_batch, 0);
    const op_program *program = out->program;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        const op_node *nodes = program->lists[list].nodes;
        TRY(arena_new(a, program->lists[list].count, &out->of[list]));
        for (int64_t i = 0; i + 1 < program->lists[list].count; i++) {
            const bool after_other = i > 0 && out->of[list][i - 1];
            if (after_other || !takes_result(&nodes[i], &nodes[i + 1])) continue;
            out->of[list][i] =
                r->fuses(r->workspace_context, p, program, &nodes[i], &nodes[i + 1], &bound);
        }
    }
    return ST_OK;
}

static status binding_fuse(const plan *p, const answers *said, plan_binding *b)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        const int64_t count = b->program->lists[list].count;
        bool *fused = NULL;
        for (int64_t i = 0; i < count; i++) {
            if (!said->of[list][i] || !lies_apart(p, b, list, i)) continue;
            if (fused == NULL) TRY(arena_new(p->a, count, &fused));
            fused[i] = true;
        }
        b->fused[list] = fused;
    }
    return ST_OK;
}

static status bindings_fuse(arena *a, const plan_request *r, plan *p)
{
    answers *all = NULL;
    int64_t count = 0;
    TRY(arena_new(a, max_i64(p->binding_count, 1), &all));
    for (int64_t i = 0; i < p->binding_count; i++) {
        plan_binding *b = &p->bindings[i];
        int64_t k = 0;
        if (b->layer < 0) continue; // optimizers have no such pairs
        while (k < count && all[k].program != b->program) k++;
        if (k == count) {
            all[count++].program = b->program;
            TRY(program_ask(a, r, p, &all[k]));
        }
        TRY(binding_fuse(p, &all[k], b));
    }
    return ST_OK;
}

status plan_fuse(const plan_request *request, plan *p)
{
    arena *a = NULL;
    if (request->fuses == NULL) return ST_OK;
    TRY(arena_create("fusion", 0, &a));
    const status st = bindings_fuse(a, request, p);
    arena_destroy(a);
    return st;
}
