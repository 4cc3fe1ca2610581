// The entry to all kernels: it checks a call once, for every backend, then runs it.
//
// The row of an operation (op/op.h) states its operands, which of them may be missing, and the
// checks that a signature cannot express (`check`).
//
// Shapes come from the plan, so a wrong shape is a bug and trips ASSERT. The only error status is
// that a backend lacks something.
#include "kernels/kernels_internal.h"

#include <string.h>

// Facts about a call that are known so far: extents by letter, and the shape of '*', which has up
// to two dims.
typedef struct shape_bindings {
    op_facts facts;
    int32_t any_ndim;
    int64_t any_dims[OP_MAX_DIMS];
} shape_bindings;

static void check_strides(const kern_tensor *t)
{
    ASSERT(t->ndim >= 1 && t->ndim <= 2);
    for (int32_t d = 0; d < t->ndim; d++) ASSERT(t->dims[d] >= 0);
    ASSERT(t->strides[t->ndim - 1] == 1);
    // Rows may have gaps between them (views) but may not overlap.
    if (t->ndim == 2 && t->dims[0] > 1) ASSERT(t->strides[0] >= t->dims[1]);
}

// Checks an operand against one word, such as "fNK", of `length` characters.
static void check_operand(const char *word, int64_t length, const kern_tensor *t,
                          shape_bindings *bindings)
{
    if (word[0] == '.') return;
    ASSERT(op_type_fits(word[0], t->type));
    check_strides(t);
    if (word[1] == '*') {
        if (bindings->any_ndim == 0) {
            bindings->any_ndim = t->ndim;
            memcpy(bindings->any_dims, t->dims, sizeof(t->dims));
        }
        ASSERT(t->ndim == bindings->any_ndim);
        for (int32_t d = 0; d < t->ndim; d++) ASSERT(t->dims[d] == bindings->any_dims[d]);
        return;
    }
    ASSERT(t->ndim == (int32_t)length - 1);
    for (int32_t d = 0; d < t->ndim; d++) {
        int64_t *known = &bindings->facts.extent[(unsigned char)word[1 + d]];
        if (*known < 0) *known = t->dims[d];
        ASSERT(*known == t->dims[d]);
    }
}

// Checks all words of one side, and which operands are present. A missing operand must be optional;
// operands beyond the words must be missing. Returns the present ones as bits.
static uint32_t check_side(const char *words, const kern_tensor *operands, int64_t count,
                           uint32_t optional, shape_bindings *bindings)
{
    int64_t i = 0;
    uint32_t there = 0;
    for (const char *word = words; *word != '\0'; i++) {
        const int64_t length = (int64_t)strcspn(word, " ");
        ASSERT(i < count);
        if (operands[i].data != NULL) {
            check_operand(word, length, &operands[i], bindings);
            there |= 1u << i;
        } else {
            const bool empty = operands[i].ndim > 0 && operands[i].dims[0] == 0;
            ASSERT(word[0] == '.' || empty || (optional >> i & 1u) != 0);
        }
        word += length;
        while (*word == ' ') word++;
    }
    for (; i < count; i++) ASSERT(operands[i].data == NULL);
    return there;
}

static bool is_dense(const kern_tensor *t)
{
    return t->ndim == 1 || t->dims[0] <= 1 || t->strides[0] == t->dims[1];
}

// Returns the bytes from the first element to the last, gaps between rows included.
static int64_t reach(const kern_tensor *t)
{
    const int64_t columns = t->dims[t->ndim - 1], rows = t->ndim == 2 ? t->dims[0] : 1;
    if (rows == 0 || columns == 0) return 0;
    return ((t->ndim == 2 ? (rows - 1) * t->strides[0] : 0) + columns) * dtype_bytes(t->type);
}

// An output may overlap an input only if the operation's row allows it, or if it is the new value
// of a state. (Views of one tensor may be interleaved: for them only equal starts are detected.)
static void check_overlaps(const kern_call *c, const op_kind *kind)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *out = &c->out[o];
        if (out->data == NULL || out->data == (void *)c->step || reach(out) == 0) continue;
        for (int i = 0; i < OP_MAX_IN; i++) {
            const kern_tensor *in = &c->in[i];
            if (in->data == NULL || reach(in) == 0) continue;
            if (kind->inplace[o] == i || (kind->updates_state && i == o + 1)) continue;
            ASSERT(in->data != out->data);
            if (!is_dense(in) || !is_dense(out)) continue;
            const char *a = in->data, *b = out->data;
            ASSERT(a + reach(in) <= b || b + reach(out) <= a);
        }
    }
}

static void check_call(const kern_call *c)
{
    const op_kind *kind = op_kind_of(c->code);
    shape_bindings bindings = {.facts = {.attrs = &c->attrs,
                                         .piece = &c->piece,
                                         .seq = c->seq,
                                         .cache_seq = c->cache_seq,
                                         .loss_divisor = c->loss_divisor,
                                         .has_step = c->step != NULL}};
    for (int64_t i = 0; i < COUNT_OF(bindings.facts.extent); i++) bindings.facts.extent[i] = -1;
    bindings.facts.in = check_side(kind->in, c->in, OP_MAX_IN, kind->optional_in, &bindings);
    bindings.facts.out = check_side(kind->out, c->out, OP_MAX_OUT, kind->optional_out, &bindings);
    if (kind->check != NULL) kind->check(&bindings.facts);
    check_overlaps(c, kind);
    // Operations that read the step block only for random numbers need no step block if they draw
    // none.
    const bool needs_step = kind->step_writes != 0 || kind->updates_state;
    if (needs_step || c->attrs.dropout > 0.0f) ASSERT(c->step != NULL);
}

static bool is_same(const kern_tensor *a, const kern_tensor *b)
{
    return a->data == b->data && a->type == b->type && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, sizeof(a->dims)) == 0 &&
           memcmp(a->strides, b->strides, sizeof(a->strides)) == 0;
}

static bool meets(const kern_tensor *t, const void *data, int64_t bytes)
{
    const char *a = t->data, *b = data;
    return a != NULL && b != NULL && a < b + bytes && b < a + reach(t);
}

static bool is_bounded(const kern_call *c)
{
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const kern_tensor *t = i < OP_MAX_IN ? &c->in[i] : &c->out[i - OP_MAX_IN];
        if (t->data != NULL && t->count != NULL) return true;
    }
    return false;
}

static bool has_shape(const kern_tensor *a, const kern_tensor *b)
{
    return a->type == b->type && a->ndim == b->ndim &&
           memcmp(a->dims, b->dims, sizeof(a->dims)) == 0;
}

bool kern_fuses(const kern_context *context, const kern_call *first, const kern_call *second)
{
    const kern_pair_fn fuses = context->backend->fuses[first->code];
    const int at = op_tiled_input(second->code);
    if (fuses == NULL || at < 0 || !has_shape(&first->out[0], &second->in[at])) return false;
    return fuses(context, first, second);
}

bool kern_joins(const kern_context *context, const kern_call *first, const kern_call *second)
{
    const int at = op_tiled_input(second->code);
    const kern_tensor *made = &first->out[0], *out = &second->out[0];
    if (at < 0 || !is_same(made, &second->in[at])) return false;
    if (is_bounded(first) || is_bounded(second)) return false;
    for (int i = 0; i < OP_MAX_IN; i++) {
        const kern_tensor *in = &first->in[i];
        const bool adds_to = in->data == made->data; // it continues from its result
        if (in->data != NULL && !adds_to && meets(out, in->data, reach(in))) return false;
    }
    if (meets(out, first->workspace, first->workspace_bytes)) return false;
    if (!is_same(out, made) && meets(out, made->data, reach(made))) return false;
    return kern_fuses(context, first, second);
}

bool kern_eats_operand(const kern_call *second)
{
    const int at = op_tiled_input(second->code);
    for (int o = 0; o < OP_MAX_OUT; o++) {
        for (int i = 0; i < OP_MAX_IN; i++) {
            const kern_tensor *in = &second->in[i];
            if (i != at && in->data != NULL && meets(&second->out[o], in->data, reach(in))) {
                return true;
            }
        }
    }
    return false;
}

// ---- bounded rows -------------------------------------------------------------------------------

// Returns whether the call writes the count of t.
static bool makes_count(const kern_call *c, const kern_tensor *t)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (meets(&c->out[o], t->count, dtype_bytes(t->count_type))) return true;
    }
    return false;
}

static status count_read(const kern_call *c, const kern_tensor *t, int64_t *rows)
{
    ASSERT(t->count_type == DTYPE_I32 || t->count_type == DTYPE_I64);
    *rows = t->count_type == DTYPE_I32 ? *(const int32_t *)t->count : *(const int64_t *)t->count;
    if (*rows >= 0 && *rows <= t->dims[0]) return ST_OK;
    return fail(ST_DATA, "%s: an operand has %lld rows of at most %lld", op_kind_of(c->code)->name,
                (long long)*rows, (long long)t->dims[0]);
}

// Sets *out to the call restricted to the rows that exist.
static status call_count(const kern_call *c, kern_call *out)
{
    *out = *c;
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        kern_tensor *t = i < OP_MAX_IN ? &out->in[i] : &out->out[i - OP_MAX_IN];
        if (t->data == NULL || t->count == NULL || makes_count(c, t)) continue;
        int64_t rows = 0;
        TRY(count_read(c, t, &rows));
        t->dims[0] = rows;
    }
    return ST_OK;
}

static status rest_poison(const kern_call *c)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *t = &c->out[o];
        int64_t rows = 0;
        if (t->data == NULL || t->count == NULL) continue;
        TRY(count_read(c, t, &rows));
        const int64_t width = dtype_bytes(t->type);
        const int64_t row = t->ndim == 2 ? t->dims[1] * width : width;
        for (; rows < t->dims[0]; rows++) {
            memset((char *)t->data + rows * t->strides[0] * width, 0xFF, (size_t)row);
        }
    }
    return ST_OK;
}

static status bounded_run(const kern_context *context, const kern_call *call)
{
    kern_call counted;
    ASSERT(call->then == NULL);
    TRY(call_count(call, &counted));
    TRY(context->backend->run[call->code](context, &counted));
    return call->poison ? rest_poison(call) : ST_OK;
}

status kern_call_run(const kern_context *context, const kern_call *call)
{
    ASSERT((int)call->code >= 0 && call->code < OP_CODE_COUNT);
    check_call(call);
    if (call->then != NULL) check_call(call->then);
    if (context->backend->run[call->code] == NULL) {
        return fail(ST_UNSUPPORTED, "backend %s has no kernel for %s", context->backend->name,
                    op_kind_of(call->code)->name);
    }
    ASSERT(call->seal == NULL || kern_seals(context, call->code));
    const int64_t workspace = kern_workspace_bytes(context, call);
    ASSERT(call->workspace_bytes >= workspace);
    ASSERT(workspace == 0 || ((uintptr_t)call->workspace % ALIGN_TENSOR) == 0);
    ASSERT(((uintptr_t)call->packed % ALIGN_TENSOR) == 0);
    if (is_bounded(call) && !context->backend->on_gpu) {
        TRY(bounded_run(context, call));
        return kern_checks_status(context->checks);
    }
    TRY(context->backend->run[call->code](context, call));
    TRY(kern_checks_status(context->checks));
    if (!call->poison || context->backend->poison_rest == NULL) return ST_OK;
    return context->backend->poison_rest(context, call);
}
