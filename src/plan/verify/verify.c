// The entry of the verifier and its error messages.
#include "plan/verify/verify_internal.h"

#include <stdio.h>
#include <string.h>

// ---- names of actions ---------------------------------------------------------------------------

static const char *list_name(int32_t list)
{
    static const char *const names[OP_LIST_COUNT] = {
        [OP_FORWARD] = "forward",
        [OP_RECOMPUTE] = "recompute",
        [OP_BACKWARD_INPUT] = "backward_input",
        [OP_BACKWARD_WEIGHT] = "backward_weight",
    };
    return list >= 0 && list < OP_LIST_COUNT ? names[list] : "list";
}

static void name_communication(const plan *p, const plan_action *a, char *out, size_t bytes)
{
    char group[PLAN_GROUP_NAME_BYTES] = "no group";
    if (a->comm < 0 || a->comm >= p->comm_count) {
        (void)snprintf(out, bytes, "communication %d", a->comm);
        return;
    }
    const plan_comm *c = &p->comms[a->comm];
    if (c->group >= 0 && c->group < p->run->group_count) {
        plan_group_name(&p->run->groups[c->group], group);
    }
    (void)snprintf(out, bytes, "%s of %s, %s", op_collective_name(c->op), c->name, group);
}

// Names a node of an optimizer or of a tree by its first operand.
static void name_nodes(const plan *p, const plan_action *a, char *out, size_t bytes)
{
    const plan_binding *b = &p->bindings[a->binding];
    const op_node *node = &b->program->lists[a->list].nodes[a->ops_begin];
    const char *tensor = NULL;
    for (int k = 0; k < OP_MAX_IN && tensor == NULL; k++) {
        if (node->in[k] == TENSOR_NONE || b->tensor[node->in[k]] == -1) continue;
        tensor = plan_tensor_at(p, b->tensor[node->in[k]])->name;
    }
    (void)snprintf(out, bytes, "%s%s%s", op_kind_of(node->code)->name, tensor != NULL ? " of " : "",
                   tensor != NULL ? tensor : "");
}

static void name_work(const plan *p, const plan_action *a, char *out, size_t bytes)
{
    const bool is_bound = a->binding >= 0 && a->binding < p->binding_count && a->list >= 0 &&
                          a->list < OP_LIST_COUNT && a->ops_count > 0 && a->ops_begin >= 0 &&
                          a->ops_begin < p->bindings[a->binding].program->lists[a->list].count;
    switch (a->kind) {
    case ACTION_COPY:
        (void)snprintf(out, bytes, "copy of the batch");
        return;
    case ACTION_READBACK:
        (void)snprintf(out, bytes, "read-back");
        return;
    case ACTION_COMMUNICATE:
        name_communication(p, a, out, bytes);
        return;
    case ACTION_COMPUTE:
    case ACTION_OPTIMIZER:
    case ACTION_KIND_COUNT:
    default:
        break;
    }
    if (a->layer >= 0 && a->layer < p->model->layer_count) {
        (void)snprintf(out, bytes, "%s of %s", list_name(a->list), p->model->layers[a->layer].name);
    } else if (is_bound) {
        name_nodes(p, a, out, bytes);
    } else {
        (void)snprintf(out, bytes, "nothing");
    }
}

const char *verify_name(const verifier *v, int32_t rank, int32_t action,
                        char out[VERIFY_NAME_BYTES])
{
    const plan *p = v->plans[rank];
    const plan_action *a = &p->actions[action];
    char work[VERIFY_NAME_BYTES - 64], microbatch[32] = "";
    name_work(p, a, work, sizeof(work));
    if (a->microbatch >= 0 && a->kind != ACTION_COMMUNICATE) {
        (void)snprintf(microbatch, sizeof(microbatch), ", micro-batch %d", a->microbatch);
    }
    (void)snprintf(out, VERIFY_NAME_BYTES, "rank %d, action %d (%s%s)", rank, action, work,
                   microbatch);
    return out;
}

// ---- findings of the graph ----------------------------------------------------------------------

static const char *step_words(int32_t step)
{
    return step == 0 ? "" : " of the next step";
}

// A cycle of several ranks shows its communications only; the actions between them just wait for
// their turn on a stream.
static bool is_shown(const verifier *v, const verify_finding *found, int32_t i)
{
    const verify_at *at = &found->cycle[i];
    const plan_action *a = &v->plans[at->rank]->actions[at->action];
    if (a->kind == ACTION_COMMUNICATE) return true;
    for (int32_t k = 0; k < found->cycle_count; k++) {
        const verify_at *other = &found->cycle[k];
        const plan_action *b = &v->plans[other->rank]->actions[other->action];
        if (b->kind == ACTION_COMMUNICATE) return false;
    }
    return true;
}

static status cycle_fail(const verifier *v, const verify_finding *found)
{
    enum { SHOWN = 8 };
    char name[VERIFY_NAME_BYTES];
    int32_t shown = 0;
    text t = {.a = v->a};
    for (int32_t i = 0; i < found->cycle_count && shown < SHOWN; i++) {
        const verify_at *at = &found->cycle[i];
        if (!is_shown(v, found, i)) continue;
        TRY(text_add(&t, "\n  %s%s%s", shown++ == 0 ? "" : "waits for ",
                     verify_name(v, at->rank, at->action, name), step_words(at->step)));
    }
    return fail(
        ST_BROKEN_PLAN,
        "ranks wait for each other for ever, in a cycle of %d actions:%s\n  which waits for "
        "the first",
        found->cycle_count, t.bytes);
}

static status race_fail(const verifier *v, const verify_finding *found)
{
    char one[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    const verify_facts *f = &v->facts[found->a.rank];
    const verify_span a = f->spans[found->span_a], b = f->spans[found->span_b];
    const char *x = verify_tensor(f, f->span_tensor[found->span_a])->name;
    const char *y = verify_tensor(f, f->span_tensor[found->span_b])->name;
    return fail(ST_BROKEN_PLAN,
                "%s%s and %s%s access the same bytes and one writes, but no wait orders "
                "them: %s%s%s, bytes [%lld, %lld) of the arena",
                verify_name(v, found->a.rank, found->a.action, one), step_words(found->a.step),
                verify_name(v, found->b.rank, found->b.action, other), step_words(found->b.step), x,
                x != y ? " and " : "", x != y ? y : "", (long long)max_i64(a.begin, b.begin),
                (long long)min_i64(a.end, b.end));
}

static status finding_fail(const verifier *v)
{
    char one[VERIFY_NAME_BYTES], other[VERIFY_NAME_BYTES];
    const verify_finding *found = &v->result.finding;
    switch (found->kind) {
    case VERIFY_SOUND:
        return ST_OK;
    case VERIFY_LATER:
        (void)verify_name(v, found->a.rank, found->a.action, one);
        if (found->b.action >= v->facts[found->a.rank].p->action_count) {
            return fail(ST_BROKEN_PLAN, "%s waits for action %d, which does not exist", one,
                        found->b.action);
        }
        return fail(ST_BROKEN_PLAN, "%s waits for %s, which is not before it in the list", one,
                    verify_name(v, found->b.rank, found->b.action, other));
    case VERIFY_DIFFERS:
        return verify_differs(v, found);
    case VERIFY_MISSING:
        return verify_misses(v, found);
    case VERIFY_CYCLE:
        return cycle_fail(v, found);
    case VERIFY_UNORDERED:
        return fail(
            ST_BROKEN_PLAN,
            "%s%s and %s%s use one group, but no wait makes the first end before the second "
            "begins",
            verify_name(v, found->a.rank, found->a.action, one), step_words(found->a.step),
            verify_name(v, found->b.rank, found->b.action, other), step_words(found->b.step));
    case VERIFY_RACE:
        return race_fail(v, found);
    default:
        return fail(ST_INTERNAL, "a finding of kind %d", (int)found->kind);
    }
}

// ---- the entry ----------------------------------------------------------------------------------

static status facts_make(verifier *v)
{
    verify_rank *ranks = NULL;
    TRY(arena_new(v->a, v->rank_count, &v->facts));
    TRY(arena_new(v->a, v->rank_count, &ranks));
    for (int32_t r = 0; r < v->rank_count; r++) {
        verify_facts *f = &v->facts[r];
        *f = (verify_facts){.p = v->plans[r], .rank = r, .at = plan_mesh_from(v->mesh, r)};
        TRY(verify_touches(v, f));
        v->out->actions += f->p->action_count;
        v->out->waits += f->p->wait_count;
        v->out->peak_bytes[r] = f->p->run->run_bytes + f->p->transient_bytes;
    }
    TRY(verify_places(v));
    for (int32_t r = 0; r < v->rank_count; r++) {
        const verify_facts *f = &v->facts[r];
        ranks[r] = (verify_rank){.actions = f->actions,
                                 .action_count = (int32_t)f->p->action_count,
                                 .waits = f->p->waits,
                                 .spans = f->spans,
                                 .span_count = (int32_t)f->span_count,
                                 .uses = f->uses,
                                 .stream_count = STREAM_GROUPS + (int32_t)f->p->run->group_count};
    }
    v->graph.ranks = ranks;
    v->graph.rank_count = v->rank_count;
    return ST_OK;
}

status plan_verify(arena *a, const plan_mesh *mesh, const plan *const *plans, int32_t queue_items,
                   plan_verified *out)
{
    verifier *v = NULL;
    TRY(arena_new(a, 1, &v));
    *v = (verifier){.a = a, .mesh = mesh, .plans = plans, .out = out};
    v->rank_count = (int32_t)plan_mesh_ranks(mesh);
    *out = (plan_verified){.ranks = v->rank_count};
    TRY(arena_new(a, v->rank_count, &out->peak_bytes));
    v->graph.queue_items = queue_items;
    TRY(verify_exchanges(v));
    TRY(facts_make(v));
    TRY(verify_graph_run(a, &v->graph, &v->result));
    TRY(finding_fail(v));
    out->rendezvous = v->result.rendezvous_count;
    TRY(verify_fused(v));
    TRY(verify_written(v));
    return verify_sums(v);
}
