// Gradients: walks the forward list backwards and lets each row append what its gradient needs.
//
// A tensor's gradient so far is one tensor; a second contribution appends an addition. When the
// walk reaches the node that made a tensor, it has passed all nodes that read the tensor, so the
// gradient is complete.
//
// The gradient of a view is the same columns of the gradient of its whole tensor, so q, k and v,
// which are columns of the result of one GEMM, give one gradient without a copy:
//
//   qkv  (N, (H + 2 KV) D)      q | k | v        views
//   dqkv (N, (H + 2 KV) D)     dq |dk |dv        each range written by its own node
//
// Frozen tensors (op_tensor.frozen) get no gradient, so no operation is appended below the first
// trained weight, and a program whose output is frozen has no backward lists at all.
//
// The ranges are pieces (op_program.grad_pieces). When the walk reaches the node that made the
// whole tensor, they are joined and checked to cover all columns.
#include "op/op_internal.h"

#include <string.h>

static status grad_slots(op_program *p)
{
    if (p->tensor_count <= p->grad_of_capacity) return ST_OK;
    const int64_t had = p->grad_of_capacity;
    TRY(arena_grow(p->a, (void **)&p->grad_of, &p->grad_of_capacity, p->tensor_count,
                   (int64_t)sizeof(tensor_id)));
    for (int64_t i = had; i < p->grad_of_capacity; i++) p->grad_of[i] = TENSOR_NONE;
    return ST_OK;
}

bool op_wants_grad(const op_program *p, tensor_id t)
{
    if (t == TENSOR_NONE) return false;
    const op_tensor *whole = op_at(p, op_owner(p, t).id);
    return (whole->role == ROLE_ACTIVATION || whole->role == ROLE_INPUT) &&
           op_type_fits('f', whole->type) && !whole->frozen;
}

bool op_trains(const op_program *p, tensor_id t)
{
    return t != TENSOR_NONE && op_at(p, t)->role == ROLE_WEIGHT && !op_at(p, t)->frozen;
}

tensor_id op_grad_get(const op_program *p, tensor_id t)
{
    return t == TENSOR_NONE || t >= p->grad_of_capacity ? TENSOR_NONE : p->grad_of[t];
}

tensor_id op_grad_take(op_program *p, tensor_id t)
{
    const tensor_id d = op_grad_get(p, t);
    if (d != TENSOR_NONE) p->grad_of[t] = TENSOR_NONE;
    return d;
}

// Makes a new tensor for a gradient of t.
static status grad_make(op_program *p, tensor_id t, tensor_role role, tensor_id *d)
{
    op_tensor grad = *op_at(p, t);
    op_name_unique(p, "d_", op_at(p, t)->name, grad.name);
    grad.role = role;
    grad.of = t;
    grad.view_of = TENSOR_NONE;
    grad.view_begin = 0;
    return op_tensor_add(p, &grad, d);
}

static const struct op_grad_piece *piece_of_whole(const op_program *p, tensor_id whole)
{
    for (int64_t i = 0; i < p->grad_piece_count; i++) {
        if (p->grad_pieces[i].whole == whole) return &p->grad_pieces[i];
    }
    return NULL;
}

static int64_t overlap(const struct op_grad_piece *piece, int64_t begin, int64_t count)
{
    const int64_t from = max_i64(piece->begin, begin);
    const int64_t to = min_i64(piece->begin + piece->count, begin + count);
    return max_i64(to - from, 0);
}

// Returns how many of the columns already have a piece.
static int64_t columns_taken(const op_program *p, tensor_id whole, int64_t begin, int64_t count)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < p->grad_piece_count; i++) {
        if (p->grad_pieces[i].whole != whole) continue;
        taken += overlap(&p->grad_pieces[i], begin, count);
    }
    return taken;
}

static status piece_add(op_program *p, tensor_id t, tensor_id *d)
{
    const tensor_id whole = op_owner(p, t).id;
    const int64_t begin = op_at(p, t)->view_begin, count = op_at(p, t)->dims[1].scale;
    struct op_grad_piece piece = {
        .whole = whole, .grad_whole = TENSOR_NONE, .begin = begin, .count = count};
    const struct op_grad_piece *sibling = piece_of_whole(p, whole);
    if (sibling != NULL) piece.grad_whole = sibling->grad_whole;
    if (sibling == NULL) TRY(grad_make(p, whole, ROLE_ACTIVATION, &piece.grad_whole));
    char name[OP_NAME_BYTES];
    op_name_unique(p, "d_", op_at(p, t)->name, name);
    TRY(op_view(p, piece.grad_whole, name, begin, count, &piece.grad_view));
    p->tensors[piece.grad_view].of = t;
    TRY(arena_grow(p->a, (void **)&p->grad_pieces, &p->grad_piece_capacity, p->grad_piece_count + 1,
                   (int64_t)sizeof(piece)));
    p->grad_pieces[p->grad_piece_count++] = piece;
    *d = piece.grad_view;
    return ST_OK;
}

status op_grad_new(op_program *p, tensor_id t, tensor_id *d)
{
    const op_tensor *tensor = op_at(p, t);
    if (tensor->view_of != TENSOR_NONE && op_wants_grad(p, t) &&
        columns_taken(p, tensor->view_of, tensor->view_begin, tensor->dims[1].scale) == 0) {
        return piece_add(p, t, d);
    }
    return grad_make(p, t, ROLE_ACTIVATION, d);
}

static status sum_append(op_program *p, tensor_id a, tensor_id b, tensor_id out)
{
    op_node add = op_node_of(OP_ADD);
    add.in[0] = a;
    add.in[1] = b;
    add.out[0] = out;
    return op_append(p, OP_BACKWARD_INPUT, &add, 0);
}

static bool is_piece(const op_program *p, tensor_id d)
{
    for (int64_t i = 0; i < p->grad_piece_count; i++) {
        if (p->grad_pieces[i].grad_view == d) return true;
    }
    return false;
}

// Adds d to the gradient of view t. If op_grad_new made d, it is in place already; else it is added
// to the present gradient, or copied.
static status view_add(op_program *p, tensor_id t, tensor_id d)
{
    if (is_piece(p, d) && op_at(p, d)->of == t) return ST_OK;
    const tensor_id whole = op_owner(p, t).id;
    const int64_t begin = op_at(p, t)->view_begin, count = op_at(p, t)->dims[1].scale;
    const int64_t taken = columns_taken(p, whole, begin, count);
    if (taken == 0) {
        op_node copy = op_node_of(OP_CAST);
        copy.in[0] = d;
        TRY(piece_add(p, t, &copy.out[0]));
        return op_append(p, OP_BACKWARD_INPUT, &copy, 0);
    }
    if (taken != count) {
        return fail(ST_UNSUPPORTED, "%s: some of its columns are in another view of %s, others not",
                    op_at(p, t)->name, op_at(p, whole)->name);
    }
    char name[OP_NAME_BYTES];
    op_name_unique(p, "d_", op_at(p, t)->name, name);
    tensor_id there = TENSOR_NONE;
    const struct op_grad_piece *sibling = piece_of_whole(p, whole);
    ASSERT(sibling != NULL); // some columns are taken
    TRY(op_view(p, sibling->grad_whole, name, begin, count, &there));
    p->tensors[there].of = t;
    return sum_append(p, there, d, there);
}

status op_grad_add(op_program *p, tensor_id t, tensor_id d)
{
    ASSERT(d != TENSOR_NONE);
    if (!op_wants_grad(p, t)) return ST_OK;
    if (op_at(p, t)->view_of != TENSOR_NONE) return view_add(p, t, d);
    const tensor_id had = op_grad_get(p, t);
    tensor_id sum = d;
    if (had != TENSOR_NONE) {
        TRY(grad_make(p, t, ROLE_ACTIVATION, &sum));
        TRY(sum_append(p, had, d, sum));
    }
    TRY(grad_slots(p));
    p->grad_of[t] = sum;
    return ST_OK;
}

status op_grad_weight(op_program *p, tensor_id weight, tensor_id *accumulator)
{
    const op_tensor *w = op_at(p, weight);
    if (w->role != ROLE_WEIGHT || w->view_of != TENSOR_NONE) {
        return fail(ST_MODEL, "%s is used as a weight and is none", w->name);
    }
    op_tensor grad = *w;
    op_name_unique(p, "d_", w->name, grad.name);
    grad.role = ROLE_WEIGHT_GRAD;
    grad.type = p->grad;
    grad.of = weight;
    return op_tensor_add(p, &grad, accumulator);
}

status op_grad_append(op_program *p, op_node *node, tensor_id t)
{
    if (!op_wants_grad(p, t)) return ST_OK;
    TRY(op_grad_new(p, t, &node->out[0]));
    TRY(op_append(p, OP_BACKWARD_INPUT, node, 0));
    return op_grad_add(p, t, node->out[0]);
}

// Joins the pieces of a whole tensor; then its gradient is an ordinary one.
static status pieces_join(op_program *p, tensor_id whole)
{
    const struct op_grad_piece *first = piece_of_whole(p, whole);
    if (first == NULL) return ST_OK;
    const op_tensor *t = op_at(p, whole);
    const int64_t taken = columns_taken(p, whole, 0, t->dims[1].scale);
    if (taken != t->dims[1].scale) {
        return fail(ST_UNSUPPORTED, "only %lld of the %lld columns of %s have a gradient",
                    (long long)taken, (long long)t->dims[1].scale, t->name);
    }
    const tensor_id d = first->grad_whole;
    int64_t kept = 0;
    for (int64_t i = 0; i < p->grad_piece_count; i++) {
        if (p->grad_pieces[i].whole != whole) p->grad_pieces[kept++] = p->grad_pieces[i];
    }
    p->grad_piece_count = kept;
    return op_grad_add(p, whole, d);
}

// Runs before the rule of the node that made t: the gradient is complete, and op_grad_get returns
// it.
static status grad_finish(op_program *p, tensor_id t)
{
    const tensor_id whole = op_owner(p, t).id;
    TRY(pieces_join(p, whole));
    const tensor_id d = op_grad_get(p, whole);
    if (whole == t || d == TENSOR_NONE) return ST_OK;
    // The node wrote some columns of a tensor that other nodes wrote too.
    const int64_t begin = op_at(p, t)->view_begin, count = op_at(p, t)->dims[1].scale;
    char name[OP_NAME_BYTES];
    op_name_unique(p, "d_", op_at(p, t)->name, name);
    tensor_id view = TENSOR_NONE;
    TRY(op_view(p, d, name, begin, count, &view));
    p->tensors[view].of = t;
    TRY(grad_slots(p));
    p->grad_of[t] = view;
    return ST_OK;
}

static status node_differentiate(op_program *p, const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    bool needed = false;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] == TENSOR_NONE) continue;
        TRY(grad_finish(p, node->out[o]));
        needed = needed || op_grad_get(p, node->out[o]) != TENSOR_NONE;
    }
    if (!needed) return ST_OK;
    if (kind->gradient == NULL) {
        return fail(ST_UNSUPPORTED, "%s has no gradient, and the loss depends on it", kind->name);
    }
    return kind->gradient(p, node);
}

// A program with a loss runs its weight list first; no node of that list may depend on the other
// list.
static status order_check(const op_program *p)
{
    if (p->output_count > 0) return ST_OK;
    const int64_t inputs = p->lists[OP_BACKWARD_INPUT].count;
    const int64_t weights = p->lists[OP_BACKWARD_WEIGHT].count;
    for (int64_t i = 0; i < inputs; i++) {
        const op_node *made = &p->lists[OP_BACKWARD_INPUT].nodes[i];
        for (int64_t k = 0; k < weights * OP_MAX_IN; k++) {
            const op_node *reader = &p->lists[OP_BACKWARD_WEIGHT].nodes[k / OP_MAX_IN];
            const tensor_id t = reader->in[k % OP_MAX_IN];
            for (int o = 0; o < OP_MAX_OUT && t != TENSOR_NONE; o++) {
                if (made->out[o] == TENSOR_NONE ||
                    op_owner(p, t).id != op_owner(p, made->out[o]).id) {
                    continue;
                }
                return fail(ST_UNSUPPORTED,
                            "a block with a loss may hold nothing but a norm before it: %s of %s "
                            "reads %s",
                            op_kind_of(reader->code)->name, op_kind_of(made->code)->name,
                            op_at(p, t)->name);
            }
        }
    }
    return ST_OK;
}

status op_program_differentiate(op_program *p)
{
    if (p->purpose != PURPOSE_TRAIN) {
        return fail(ST_INTERNAL, "only a program for training has gradients");
    }
    for (int i = 0; i < p->output_count; i++) {
        if (!op_wants_grad(p, p->outputs[i])) continue;
        TRY(grad_make(p, p->outputs[i], ROLE_INPUT_GRAD, &p->d_outputs[i]));
        TRY(op_grad_add(p, p->outputs[i], p->d_outputs[i]));
    }
    for (int64_t i = p->lists[OP_FORWARD].count - 1; i >= 0; i--) {
        // A copy, because rules append to the lists, and lists may move.
        const op_node node = p->lists[OP_FORWARD].nodes[i];
        TRY(node_differentiate(p, &node));
    }
    for (int i = 0; i < p->input_count; i++) {
        TRY(grad_finish(p, p->inputs[i]));
        p->d_inputs[i] = op_grad_get(p, p->inputs[i]);
    }
    return order_check(p);
}
