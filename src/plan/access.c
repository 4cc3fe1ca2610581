// The bytes that an action accesses, derived from the arguments that the executor gives to kernels
// (exec/call.c) and to comm.
#include "plan/access.h"

int32_t plan_access_owner(const plan *p, int32_t ref, int64_t *begin)
{
    *begin = 0;
    for (const plan_tensor *t = plan_tensor_at(p, ref); t->is_part; t = plan_tensor_at(p, ref)) {
        *begin += t->offset;
        ref = t->whole;
    }
    return ref;
}

// ---- nodes --------------------------------------------------------------------------------------

operand_access plan_access_operand(const op_program *program, const op_node *node, int k,
                                   bool accumulate)
{
    operand_access out = {.owner = TENSOR_NONE};
    const int o = k - ACCESS_OUT;
    const tensor_id t = op_operand(node, k);
    if (t == TENSOR_NONE || program->tensors[t].role == ROLE_STEP) return out;
    const op_owned owned = op_owner(program, t);
    out.owner = owned.id;
    out.column = owned.column;
    out.row = owned.row;
    if (o < 0) return out;
    const bool adds = accumulate && (op_kind_of(node->code)->accumulates >> o & 1u) != 0;
    out.kind = adds ? ACCESS_UPDATE : ACCESS_WRITE;
    return out;
}

access_kind plan_access_workspace(const op_node *node)
{
    // The workspace holds the logits of the node that computes the head's statistics.
    const bool goes_on = op_kind_of(node->code)->logits == LOGITS_LOSS && node->attrs.kept;
    return goes_on ? ACCESS_UPDATE : ACCESS_WRITE;
}

// Narrows the access to the rows of the action's sequences and positions, if `owner` has rows of
// tokens.
static void rows_of(const plan *p, const plan_action *action, const op_tensor *owner,
                    plan_access *out)
{
    const int64_t all = p->micro_batch;
    const int64_t some = action->sequence_count > 0 ? action->sequence_count : all;
    const extent_symbol symbol = owner->dims[0].symbol;
    const bool of_step = owner->role == ROLE_BATCH || owner->role == ROLE_CACHE;
    const bool in_pieces =
        action->position_count > 0 && (symbol == EXTENT_TOKENS || symbol == EXTENT_TOKENS_CUT);
    if (of_step || symbol == EXTENT_ONE || (some == all && !in_pieces)) return;
    const extent_binding own = plan_bound(p, some, action->position_count);
    const int64_t part = op_tensor_bytes(owner, &own);
    out->begin = part / some * action->sequence_begin;
    if (in_pieces) {
        const int64_t first = action->sequence_begin * p->seq + action->position_begin;
        out->begin = part * first / action->position_count;
    }
    out->bytes = part;
    out->needs = max_i64(out->needs, out->begin + part);
}

plan_action plan_action_rows(const plan_action *action, const op_node *node)
{
    plan_action all = *action;
    if (!op_kind_of(node->code)->finds_rows) return all;
    all.sequence_begin = all.sequence_count = all.position_begin = all.position_count = 0;
    return all;
}

// Returns the access to tensor `t` of the program as operand k; ref -1: the plan has no tensor for
// it.
static plan_access tensor_bytes(const plan *p, const plan_action *action, tensor_id t, int k)
{
    plan_access out = {.ref = -1, .operand = k};
    const plan_binding *b = &p->bindings[action->binding];
    if (t == TENSOR_NONE || b->program->tensors[t].role == ROLE_STEP) return out;
    const op_owned is = op_owner(b->program, t);
    const int32_t ref = b->tensor[is.id];
    if (ref == -1) return out;
    const op_tensor *local = &b->program->tensors[t], *owner = &b->program->tensors[is.id];
    const extent_binding whole = plan_bound(p, p->micro_batch, 0);
    int64_t within = 0;
    out.ref = plan_access_owner(p, ref, &within);
    out.bytes = out.has = plan_tensor_at(p, ref)->bytes;
    out.needs = op_tensor_bytes(owner, &whole);
    rows_of(p, action, owner, &out);
    if (local != owner && owner->dims[0].symbol == EXTENT_ONE && owner->dims[0].scale > 0 &&
        local->dims[0].scale != owner->dims[0].scale) { // some rows of a weight
        const int64_t each = op_tensor_bytes(owner, &whole) / owner->dims[0].scale;
        out.begin = is.row * each;
        out.bytes = local->dims[0].scale * each;
    }
    if (local != owner) {
        out.column = is.column;
        out.columns = local->dims[1].scale;
    }
    out.begin += within;
    return out;
}

tensor_id plan_access_count(const op_program *program, const op_node *node, int k)
{
    const tensor_id count = op_count_of(program, op_operand(node, k));
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] == count) return TENSOR_NONE;
    }
    return count;
}

// Returns the access to a whole tensor that the program does not name.
static plan_access whole_bytes(const plan *p, int32_t ref, int operand, access_kind kind)
{
    plan_access out = {.kind = kind, .operand = operand, .bytes = plan_tensor_at(p, ref)->bytes};
    out.ref = plan_access_owner(p, ref, &out.begin);
    return out;
}

// ---- the step block -----------------------------------------------------------------------------

// Returns the access to fields [first, end). A plan without loads of experts has none of theirs.
static plan_access fields_of(const plan *p, uint32_t first, uint32_t end, access_kind kind)
{
    plan_access out = {.kind = kind, .operand = ACCESS_STEP};
    const int64_t loads = plan_load_words(p);
    out.ref = plan_access_owner(p, p->step_ref, &out.begin);
    out.begin += step_field_begin(first, loads);
    out.bytes = step_field_begin(end, loads) - step_field_begin(first, loads);
    return out;
}

// Lists the accesses to fields that the operation's row names. Neighbouring fields with the same
// kind of access are one; the host's part and the device's part are separate.
static int32_t step_fields(const plan *p, const op_node *node, plan_access *out)
{
    const op_kind *kind = op_kind_of(node->code);
    int32_t n = 0;
    for (uint32_t first = 1, end; first < STEP_FIELD_END; first = end) {
        const bool reads = (kind->step_reads & first) != 0;
        const bool writes = (kind->step_writes & first) != 0;
        for (end = first << 1; end < STEP_FIELD_END && first != STEP_FIELD_HOST; end <<= 1) {
            if (((kind->step_reads & end) != 0) != reads) break;
            if (((kind->step_writes & end) != 0) != writes) break;
        }
        if (!reads && !writes) continue;
        ASSERT(n < ACCESS_NODE_MAX - ACCESS_STEP);
        out[n] = fields_of(p, first, end,
                           !writes ? ACCESS_READ
                           : reads ? ACCESS_UPDATE
                                   : ACCESS_WRITE);
        n += out[n].bytes > 0 ? 1 : 0;
    }
    return n;
}

int32_t plan_access_node(const plan *p, const plan_action *action, int64_t at,
                         plan_access out[ACCESS_NODE_MAX])
{
    const plan_binding *b = &p->bindings[action->binding];
    const op_node *node = &b->program->lists[action->list].nodes[at];
    const int32_t *spaces = b->workspace[action->list], *packed = b->packed[action->list];
    const plan_action all = plan_action_rows(action, node);
    int32_t n = 0;
    action = &all;
    for (int k = 0; k < ACCESS_OUT; k++) {
        out[n] = tensor_bytes(p, action, node->in[k], k);
        n += out[n].ref != -1 ? 1 : 0;
    }
    for (int k = 0; k < ACCESS_WORKSPACE; k++) {
        const tensor_id count = plan_access_count(b->program, node, k);
        out[n] = tensor_bytes(p, action, count, ACCESS_COUNT + k);
        n += out[n].ref != -1 ? 1 : 0;
    }
    for (int k = ACCESS_OUT; k < ACCESS_WORKSPACE; k++) {
        out[n] = tensor_bytes(p, action, node->out[k - ACCESS_OUT], k);
        out[n].kind = plan_access_operand(b->program, node, k, action->accumulate).kind;
        n += out[n].ref != -1 ? 1 : 0;
    }
    if (spaces != NULL && spaces[at] >= 0) {
        out[n++] = whole_bytes(p, spaces[at], ACCESS_WORKSPACE, plan_access_workspace(node));
    }
    if (packed != NULL && packed[at] >= 0) {
        out[n++] =
            whole_bytes(p, packed[at], ACCESS_PACKED, action->fills ? ACCESS_WRITE : ACCESS_READ);
    }
    return n + step_fields(p, node, &out[n]);
}

// ---- communications -----------------------------------------------------------------------------

// Returns the elements of an item that a rank sends or receives.
static int64_t elements_of(const plan_comm *c, const plan_comm_item *i, int64_t ranks, int32_t me,
                           bool of_out)
{
    const int64_t all = i->total > 0 ? i->total : ranks * i->count;
    const int64_t own = min_i64(max_i64(all - me * i->count, 0), i->count);
    switch (c->op) {
    case COLLECTIVE_REDUCE_SCATTER:
        if (c->compressed) return i->count;
        return of_out ? own : all;
    case COLLECTIVE_ALL_GATHER:
        return of_out ? all : own;
    case COLLECTIVE_ALL_TO_ALL:
        return ranks * i->count;
    case COLLECTIVE_ALL_TO_ALLV:
        return of_out ? i->total : i->count;
    case COLLECTIVE_ALL_REDUCE:
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_SEND:
    case COLLECTIVE_RECEIVE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_COUNT:
    default:
        return i->count;
    }
}

static plan_access item_bytes(const plan *p, const plan_comm *c, int32_t ref, int64_t offset,
                              int64_t count)
{
    plan_access out = {.ref = -1, .operand = ACCESS_ITEM};
    if (ref == -1) return out;
    out.ref = plan_access_owner(p, ref, &out.begin);
    out.begin += offset;
    out.bytes = count * dtype_bytes(c->type);
    return out;
}

// Returns the leaves of a tensor, which are consecutive items.
static int32_t leaves_of(const plan_comm *c)
{
    return c->leaves_count > 0 ? c->leaves_count : 1;
}

int64_t plan_access_piece_bytes(const plan *p, const plan_comm *c, int32_t item)
{
    const int64_t count = p->items[c->items_begin + item].count;
    return (c->compressed ? c->piece : count) * dtype_bytes(c->type);
}

plan_access plan_access_item_in(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                int32_t item)
{
    const plan_comm_item *i = &p->items[c->items_begin + item];
    const plan_group *g = &p->run->groups[c->group];
    const int32_t me = plan_group_place(mesh, g);
    if (c->op == COLLECTIVE_RECEIVE || (c->op == COLLECTIVE_BROADCAST && c->peer != me)) {
        return (plan_access){.ref = -1};
    }
    return item_bytes(p, c, i->in, i->in_offset,
                      elements_of(c, i, plan_group_size(mesh, g), me, false));
}

plan_access plan_access_item_out(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                                 int32_t item)
{
    const plan_comm_item *i = &p->items[c->items_begin + item];
    const plan_group *g = &p->run->groups[c->group];
    const int32_t me = plan_group_place(mesh, g);
    plan_access out = {.ref = -1};
    if (c->op == COLLECTIVE_SEND || item % leaves_of(c) != 0) return out;
    if (!c->compressed || c->op != COLLECTIVE_REDUCE_SCATTER) {
        out = item_bytes(p, c, i->out, i->out_offset,
                         elements_of(c, i, plan_group_size(mesh, g), me, true));
    } else { // this rank's piece of one vector becomes the sum
        const int64_t begin = min_i64(c->piece * me, i->count);
        const int64_t end = min_i64(begin + c->piece, i->count);
        out = item_bytes(p, c, i->out, i->out_offset + begin * dtype_bytes(c->type), end - begin);
    }
    out.kind = ACCESS_WRITE;
    return out;
}

// Visits the tensors of a codec: the workspace of the stream, the residual of the sum, and its row
// of measured losses.
static status codec_each(const plan *p, const plan_comm *c, access_visit visit, void *context)
{
    plan_access a = whole_bytes(p, c->work, ACCESS_WORKSPACE, ACCESS_WRITE);
    TRY(visit(context, &a));
    if (c->feedback != -1) {
        a = whole_bytes(p, c->feedback, 0, ACCESS_UPDATE);
        TRY(visit(context, &a));
    }
    if (p->losses == -1) return ST_OK;
    const int64_t reals = p->codec_reals * (int64_t)sizeof(double);
    a = whole_bytes(p, p->losses, 0, ACCESS_WRITE);
    a.begin += c->bucket * reals;
    a.bytes = reals;
    return visit(context, &a);
}

static status comm_each(const plan *p, const plan_mesh *mesh, const plan_comm *c,
                        access_visit visit, void *context)
{
    for (int writes = 0; writes < 2; writes++) { // peers read inputs while outputs are written
        for (int32_t i = 0; i < c->items_count; i++) {
            const plan_access a = writes != 0 ? plan_access_item_out(p, mesh, c, i)
                                              : plan_access_item_in(p, mesh, c, i);
            if (a.ref != -1) TRY(visit(context, &a));
        }
    }
    return c->compressed ? codec_each(p, c, visit, context) : ST_OK;
}

// ---- actions ------------------------------------------------------------------------------------

static status copy_each(const plan *p, access_visit visit, void *context)
{
    plan_access a = fields_of(p, STEP_FIELD_HOST, STEP_FIELD_COUNTS, ACCESS_WRITE);
    TRY(visit(context, &a));
    for (int64_t t = 0; t < p->run->count; t++) {
        if (p->run->tensors[t].role != ROLE_BATCH) continue;
        a = whole_bytes(p, plan_run_ref(t), 0, ACCESS_WRITE);
        TRY(visit(context, &a));
    }
    return ST_OK;
}

static status readback_each(const plan *p, access_visit visit, void *context)
{
    plan_access a = fields_of(p, STEP_FIELD_COUNTS, STEP_FIELD_END, ACCESS_READ);
    TRY(visit(context, &a));
    if (p->bucket_count == 0 || p->losses == -1) return ST_OK;
    a = whole_bytes(p, p->losses, 0, ACCESS_READ);
    return visit(context, &a);
}

status plan_access_each(const plan *p, const plan_mesh *mesh, const plan_action *action,
                        access_visit visit, void *context)
{
    plan_access of_node[ACCESS_NODE_MAX];
    switch (action->kind) {
    case ACTION_COPY:
        return copy_each(p, visit, context);
    case ACTION_READBACK:
        return readback_each(p, visit, context);
    case ACTION_COMMUNICATE:
        return comm_each(p, mesh, &p->comms[action->comm], visit, context);
    case ACTION_COMPUTE:
    case ACTION_OPTIMIZER:
        for (int32_t i = 0; i < action->ops_count; i++) {
            const int32_t n = plan_access_node(p, action, action->ops_begin + i, of_node);
            for (int32_t k = 0; k < n; k++) TRY(visit(context, &of_node[k]));
        }
        return ST_OK;
    case ACTION_KIND_COUNT:
    default:
        return fail(ST_INTERNAL, "an action of kind %d", (int)action->kind);
    }
}

static int64_t end_of(const plan *p, int32_t ref)
{
    return ref != -1 ? plan_tensor_offset(p, ref) + plan_tensor_at(p, ref)->bytes : 0;
}

static int64_t comm_end(const plan *p, const plan_comm *c)
{
    int64_t end = 0;
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        end = max_i64(end, max_i64(end_of(p, item->in), end_of(p, item->out)));
    }
    if (!c->compressed) return end;
    return max_i64(
        end, max_i64(end_of(p, c->work), max_i64(end_of(p, c->feedback), end_of(p, p->losses))));
}

int64_t plan_access_end(const plan *p, const plan_action *action)
{
    plan_access of_node[ACCESS_NODE_MAX];
    int64_t end = 0;
    if (action->kind == ACTION_COMMUNICATE) return comm_end(p, &p->comms[action->comm]);
    for (int32_t i = 0; i < action->ops_count; i++) {
        const int32_t n = plan_access_node(p, action, action->ops_begin + i, of_node);
        for (int32_t k = 0; k < n; k++) end = max_i64(end, end_of(p, of_node[k].ref));
    }
    return end;
}
