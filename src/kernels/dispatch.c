// The one door to all kernels: checks a call once, for every backend, then runs it.
//
// What an operation's operands look like is written as text, an operand a word: a letter for the kind
// of type, then a letter for each dim. A letter that comes again must have the same extent again, so
// "fNK fMK fM -> fNM" is all that there is to check of a product. "f*": any shape, but the same in all
// words with a star. ".": not a tensor (the step block). Which operands may be missing stands in the
// operation's row (op/op.h).
//
//   f floating   s statistic: fp32, or fp64 in tests   i fp integers: i32 or i64   p fp32   a any
//
// Shapes come from the plan, so a wrong one is a bug and trips ASSERT. Only what a backend lacks is a
// status.
#include "kernels/kernels.h"
#include "op/zigzag.h"

#include <string.h>

typedef struct signature {
    const char *in, *out;
} signature;

static const signature signatures[OP_CODE_COUNT] = {
    [OP_EMBEDDING] = {"iN fVD iN fPD", "fND"},
    [OP_EMBEDDING_DW] = {"iN fND", "fVD"},
    [OP_MATMUL] = {"fNK fMK fM", "fNM"},
    [OP_MATMUL_DX] = {"fNM fMK fNK", "fNK"},
    [OP_MATMUL_DW] = {"fNM fNK", "fMK"},
    [OP_BIAS_DW] = {"fNM", "fM"},
    [OP_ADD] = {"f* f*", "f*"},
    [OP_ADD_BIAS] = {"fNM fM", "fNM"},
    [OP_SUM] = {"f* f* f* f* f* f* f* f*", "f*"},
    [OP_RMSNORM] = {"fNC fD fNC", "fNC sNG fNC"},
    [OP_RMSNORM_DX] = {"fNC fNC sNG fD fNC", "fNC"},
    [OP_RMSNORM_DW] = {"fNC fNC sNG", "fD"},
    [OP_LAYERNORM] = {"fND fD fD fND", "fND sN sN fND"},
    [OP_LAYERNORM_DX] = {"fND fND sN sN fD fND", "fND"},
    [OP_LAYERNORM_DW] = {"fND fND sN sN", "fD fD"},
    [OP_ROPE] = {"fNC iN fPD", "fNC"},
    [OP_ATTENTION] = {"fNC fSE fSE iZ iB", "fNC sNH"},
    [OP_ATTENTION_MERGE] = {"fNC sNH fNC sNH", "fNC sNH"},
    [OP_ATTENTION_BWD] = {"fNC fNC fSE fSE fNC sNH iZ", "fNC fSE fSE"},
    [OP_CACHE_APPEND] = {"fNE iB", "fSE"},
    [OP_SWIGLU] = {"fNC", "fNF"},
    [OP_SWIGLU_BWD] = {"fNC fNF", "fNC"},
    [OP_ACTIVATION] = {"f*", "f*"},
    [OP_ACTIVATION_BWD] = {"f* f*", "f*"},
    [OP_DROPOUT] = {"fND", "fND"},
    [OP_UNSTACK] = {"fRC", "fNE"},
    [OP_STACK] = {"fNE", "fRC"},
    [OP_ZIP] = {"fRC", "fRC"},
    [OP_HEAD_LOSS] = {"fND fVD iN sRQ", "sN fNE fVD"},
    [OP_HEAD_STATS] = {"fND fVD iN", "sNQ"},
    [OP_GATHER] = {"fND iB", "fBD"},
    [OP_SAMPLE] = {"fBV pBX iB", "iB"},
    [OP_CAST] = {"a*", "a*"},
    [OP_TREE_ADD] = {"f*", "f*"},
    [OP_STEP_BEGIN] = {"", "."},
    [OP_STEP_LOSS] = {"sN iN", "."},
    [OP_GRAD_NORM] = {"f*", "."},
    [OP_STEP_DECIDE] = {"", "."},
    [OP_ADAMW] = {"f* f* f* f*", "f* f* f* f*"},
    [OP_MUON] = {"fRC fRC fRC", "fRC fRC fRC"},
    [OP_MUON_DIRECTION] = {"fRC fRC", "fRC sRC"},
    [OP_MUON_UPDATE] = {"sQE fRC", "fRC fRC"},
};

// Extents by letter; -1: not met yet. '*' has up to two.
typedef struct shape_book {
    int64_t extent[128];
    int32_t any_ndim;
    int64_t any_dims[OP_MAX_DIMS];
} shape_book;

static bool type_fits(char kind, dtype type)
{
    const bool wide = type == DTYPE_F32 || type == DTYPE_F64;
    switch (kind) {
    case 'f':
        return wide || type == DTYPE_BF16 || type == DTYPE_F16;
    case 's':
        return wide;
    case 'i':
        return type == DTYPE_I32 || type == DTYPE_I64;
    case 'p':
        return type == DTYPE_F32;
    default:
        return kind == 'a';
    }
}

static void check_strides(const kern_tensor *t)
{
    ASSERT(t->ndim >= 1 && t->ndim <= 2);
    for (int32_t d = 0; d < t->ndim; d++) ASSERT(t->dims[d] >= 0);
    ASSERT(t->strides[t->ndim - 1] == 1);
    // Rows may be apart (views), but may not lie on one another.
    if (t->ndim == 2 && t->dims[0] > 1) ASSERT(t->strides[0] >= t->dims[1]);
}

// One word: "fNK". `length` characters.
static void check_operand(const char *word, int64_t length, const kern_tensor *t, shape_book *book)
{
    if (word[0] == '.') return;
    ASSERT(type_fits(word[0], t->type));
    check_strides(t);
    if (word[1] == '*') {
        if (book->any_ndim == 0) {
            book->any_ndim = t->ndim;
            memcpy(book->any_dims, t->dims, sizeof(t->dims));
        }
        ASSERT(t->ndim == book->any_ndim);
        for (int32_t d = 0; d < t->ndim; d++) ASSERT(t->dims[d] == book->any_dims[d]);
        return;
    }
    ASSERT(t->ndim == (int32_t)length - 1);
    for (int32_t d = 0; d < t->ndim; d++) {
        int64_t *known = &book->extent[(unsigned char)word[1 + d]];
        if (*known < 0) *known = t->dims[d];
        ASSERT(*known == t->dims[d]);
    }
}

// All words of one side. A missing operand must be optional, one beyond the words must be missing.
static void check_side(const char *words, const kern_tensor *operands, int64_t count,
                       uint32_t optional, shape_book *book)
{
    int64_t i = 0;
    for (const char *word = words; *word != '\0'; i++) {
        const int64_t length = (int64_t)strcspn(word, " ");
        ASSERT(i < count);
        if (operands[i].data != NULL) {
            check_operand(word, length, &operands[i], book);
        } else {
            const bool empty = operands[i].ndim > 0 && operands[i].dims[0] == 0;
            ASSERT(word[0] == '.' || empty || (optional >> i & 1u) != 0);
        }
        word += length;
        while (*word == ' ') word++;
    }
    for (; i < count; i++) ASSERT(operands[i].data == NULL);
}

static int64_t extent_of_letter(const shape_book *book, char letter)
{
    return book->extent[(unsigned char)letter];
}

// Whole sequences, and for caches whole caches.
static void check_sequences(const kern_call *c, const shape_book *book)
{
    const int64_t rows = extent_of_letter(book, 'N');
    ASSERT(rows == 0 || c->seq > 0);
    ASSERT(rows == 0 || rows % c->seq == 0);
    const int64_t lengths = extent_of_letter(book, 'B');
    if (lengths < 0) return;
    ASSERT(lengths * c->seq == rows);
    ASSERT(lengths * c->cache_seq == extent_of_letter(book, 'S'));
}

static void check_attention(const kern_call *c, const shape_book *book,
                            const kern_tensor *documents)
{
    const op_attrs *a = &c->attrs;
    check_sequences(c, book);
    ASSERT(a->heads > 0 && a->kv_heads > 0 && a->head_dim > 0);
    ASSERT(a->heads % a->kv_heads == 0);
    ASSERT(a->window >= 0);
    ASSERT(extent_of_letter(book, 'C') == (int64_t)a->heads * a->head_dim);
    ASSERT(extent_of_letter(book, 'E') == (int64_t)a->kv_heads * a->head_dim);
    const int64_t heads = extent_of_letter(book, 'H'), rows = extent_of_letter(book, 'N');
    ASSERT(heads < 0 || heads == a->heads);
    // Without a cache every sequence has as many keys, at least one for each query.
    if (extent_of_letter(book, 'B') < 0 && rows > 0) {
        ASSERT(extent_of_letter(book, 'S') % (rows / c->seq) == 0);
        ASSERT(extent_of_letter(book, 'S') >= rows);
    }
    const int64_t ways = max_i64(a->cp_ways, 1), keys = extent_of_letter(book, 'S');
    if (ways > 1) {
        ASSERT(keys == rows * (a->ring ? 1 : ways));
        ASSERT(c->seq % zigzag_pieces(a->cp_turns) == 0 && a->cp_turns <= ZIGZAG_MAX_TURNS);
        ASSERT(extent_of_letter(book, 'B') < 0 && a->cp_at >= 0 && a->cp_at < ways);
        ASSERT(!a->ring || (a->key_at >= 0 && a->key_at < ways && a->shards == 0));
    }
    if (documents->data != NULL) ASSERT(extent_of_letter(book, 'Z') == rows * ways);
    if (a->shards > 0) { // backward: its queries are of one shard
        const int64_t own = a->shards / max_i64(a->cp_ways, 1);
        ASSERT(c->seq % (2 * own) == 0);
        ASSERT(a->first_shard / own == (a->cp_ways > 1 ? a->cp_at : 0));
    }
}

static bool is_dense(const kern_tensor *t)
{
    return t->ndim == 1 || t->dims[0] <= 1 || t->strides[0] == t->dims[1];
}

static void check_muon(const kern_call *c)
{
    ASSERT(c->attrs.part_count >= 0 && c->attrs.part_count <= 4);
    int64_t rows = 0;
    for (int32_t k = 0; k < c->attrs.part_count; k++) rows += c->attrs.part_rows[k];
    if (c->attrs.part_count > 1) ASSERT(rows == c->in[0].dims[0]);
}

// A piece of each part, and of the columns.
static void check_muon_update(const kern_call *c)
{
    const op_attrs *a = &c->attrs;
    int64_t rows = 0, whole = 0;
    for (int32_t k = 0; k < a->part_count; k++) {
        ASSERT(a->part_first[k] >= whole);
        ASSERT(a->part_first[k] - whole + a->part_rows[k] <= a->part_whole[k]);
        rows += a->part_rows[k];
        whole += a->part_whole[k];
    }
    ASSERT(rows == c->in[1].dims[0] && whole == c->in[0].dims[0]);
    ASSERT(a->whole_columns == c->in[0].dims[1]);
    ASSERT(a->first_column >= 0 && a->first_column + c->in[1].dims[1] <= a->whole_columns);
}

// The gradient of x has a term for each shard of the vocabulary; the statistics are of all shards.
static void check_terms(const kern_call *c, const shape_book *book)
{
    const bool cut = c->in[3].data != NULL;
    const int64_t terms = cut ? c->attrs.shard_count : 1, dim = extent_of_letter(book, 'D');
    if (c->out[1].data != NULL) ASSERT(extent_of_letter(book, 'E') == terms * dim);
    const int64_t rows = extent_of_letter(book, 'N');
    if (!cut || rows == 0) return;
    const int64_t tiles = extent_of_letter(book, 'R') / rows;
    ASSERT(tiles * rows == extent_of_letter(book, 'R'));
    ASSERT(tiles * extent_of_letter(book, 'Q') == 3 * (int64_t)c->attrs.shards);
}

static void check_tiles(const kern_call *c, const shape_book *book)
{
    const int64_t tiles = c->attrs.shard_count, repeat = max_i64(c->attrs.repeat, 1);
    const int64_t rows = extent_of_letter(book, 'R'), tile = rows / tiles;
    ASSERT(rows == tiles * tile);
    if (c->code == OP_ZIP) {
        ASSERT(tile == 0 || tile % c->seq == 0);
        ASSERT(tiles == 1 || c->seq % zigzag_pieces(c->attrs.cp_turns) == 0);
        return;
    }
    ASSERT(tile == extent_of_letter(book, 'N') && tiles % repeat == 0);
    ASSERT(extent_of_letter(book, 'E') * repeat == tiles * extent_of_letter(book, 'C'));
}

// What the letters cannot say.
static void check_meaning(const kern_call *c, const shape_book *book)
{
    const int64_t columns = extent_of_letter(book, 'C');
    switch ((int)c->code) {
    case OP_EMBEDDING:
        ASSERT((c->in[2].data == NULL) == (c->in[3].data == NULL));
        break;
    case OP_RMSNORM:
    case OP_RMSNORM_DX:
    case OP_RMSNORM_DW: {
        const int64_t dim = extent_of_letter(book, 'D'), groups = extent_of_letter(book, 'G');
        ASSERT(dim > 0 && columns % dim == 0);
        ASSERT(groups < 0 || columns == groups * dim);
        break;
    }
    case OP_ROPE:
        ASSERT(c->attrs.head_dim % 2 == 0);
        ASSERT(extent_of_letter(book, 'D') == c->attrs.head_dim);
        ASSERT((int64_t)c->attrs.heads * c->attrs.head_dim <= columns);
        break;
    case OP_ATTENTION:
        check_attention(c, book, &c->in[3]);
        break;
    case OP_ATTENTION_BWD:
        check_attention(c, book, &c->in[6]);
        break;
    case OP_CACHE_APPEND:
        check_sequences(c, book);
        break;
    case OP_SWIGLU:
    case OP_SWIGLU_BWD:
        ASSERT(columns == 2 * extent_of_letter(book, 'F'));
        break;
    case OP_DROPOUT:
        check_sequences(c, book);
        ASSERT(c->attrs.dropout >= 0.0f && c->attrs.dropout < 1.0f);
        break;
    case OP_UNSTACK:
    case OP_STACK:
    case OP_ZIP:
        check_tiles(c, book);
        break;
    case OP_ATTENTION_MERGE:
        ASSERT(columns % extent_of_letter(book, 'H') == 0);
        break;
    case OP_HEAD_STATS:
        ASSERT(c->attrs.shard_count > 0);
        ASSERT(extent_of_letter(book, 'Q') == 3 * (int64_t)c->attrs.shard_count);
        break;
    case OP_HEAD_LOSS:
        ASSERT(extent_of_letter(book, 'V') > 0);
        check_terms(c, book);
        if (c->out[1].data != NULL || c->out[2].data != NULL) ASSERT(c->loss_divisor > 0.0);
        break;
    case OP_SAMPLE:
        ASSERT(extent_of_letter(book, 'X') == 8);
        ASSERT(extent_of_letter(book, 'V') > 0);
        break;
    case OP_MUON:
        check_muon(c);
        break;
    case OP_MUON_UPDATE:
        check_muon_update(c);
        break;
    default:
        break;
    }
}

static bool needs_step(const kern_call *c)
{
    switch ((int)c->code) {
    case OP_STEP_BEGIN:
    case OP_STEP_LOSS:
    case OP_GRAD_NORM:
    case OP_STEP_DECIDE:
    case OP_ADAMW:
    case OP_MUON:
    case OP_MUON_DIRECTION:
    case OP_MUON_UPDATE:
        return true;
    case OP_HEAD_LOSS:
        return c->out[1].data != NULL || c->out[2].data != NULL;
    default:
        return c->attrs.dropout > 0.0f;
    }
}

// Bytes from the first element to the last, rows between included.
static int64_t reach(const kern_tensor *t)
{
    const int64_t columns = t->dims[t->ndim - 1], rows = t->ndim == 2 ? t->dims[0] : 1;
    if (rows == 0 || columns == 0) return 0;
    return ((t->ndim == 2 ? (rows - 1) * t->strides[0] : 0) + columns) * dtype_bytes(t->type);
}

// An output may lie on an input only where the operation's row says so, or where it is the new value
// of a state. (Views of one whole may be woven into each other: there only equal starts are seen.)
static void check_overlaps(const kern_call *c, const op_kind *kind)
{
    const bool has_state = c->code == OP_ADAMW || c->code == OP_MUON ||
                           c->code == OP_MUON_DIRECTION || c->code == OP_MUON_UPDATE;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *out = &c->out[o];
        if (out->data == NULL || out->data == (void *)c->step || reach(out) == 0) continue;
        for (int i = 0; i < OP_MAX_IN; i++) {
            const kern_tensor *in = &c->in[i];
            if (in->data == NULL || reach(in) == 0) continue;
            if (kind->inplace[o] == i || (has_state && i == o + 1)) continue;
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
    const signature *words = &signatures[c->code];
    shape_book book = {.any_ndim = 0};
    for (int64_t i = 0; i < COUNT_OF(book.extent); i++) book.extent[i] = -1;
    check_side(words->in, c->in, OP_MAX_IN, kind->optional_in, &book);
    check_side(words->out, c->out, OP_MAX_OUT, kind->optional_out, &book);
    check_meaning(c, &book);
    check_overlaps(c, kind);
    if (needs_step(c)) ASSERT(c->step != NULL);
}

// ---- two calls as one ---------------------------------------------------------------------------
// The operand of an operation that works element by element in which a product's result may come; -1: none.
static int taken_up(op_code code)
{
    if (code == OP_ACTIVATION || code == OP_SWIGLU) return 0;
    return code == OP_ACTIVATION_BWD || code == OP_SWIGLU_BWD ? 1 : -1;
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

bool kern_joins(const kern_backend *backend, const kern_context *context, const kern_call *first,
                const kern_call *second)
{
    const kern_pair_fn joins = backend->joins[first->code];
    const int at = taken_up(second->code);
    const kern_tensor *made = &first->out[0], *out = &second->out[0];
    if (joins == NULL || at < 0 || !is_same(made, &second->in[at])) return false;
    for (int i = 0; i < OP_MAX_IN; i++) {
        const kern_tensor *in = &first->in[i];
        const bool adds_to = in->data == made->data; // it goes on in its result
        if (in->data != NULL && !adds_to && meets(out, in->data, reach(in))) return false;
    }
    if (meets(out, first->workspace, first->workspace_bytes)) return false;
    if (!is_same(out, made) && meets(out, made->data, reach(made))) return false;
    return joins(context, first, second);
}

int64_t kern_workspace_bytes(const kern_backend *backend, const kern_call *call, int threads)
{
    ASSERT((int)call->code >= 0 && call->code < OP_CODE_COUNT);
    if (backend->workspace_bytes[call->code] == NULL) return 0;
    return backend->workspace_bytes[call->code](call, threads);
}

int64_t kern_panels_bytes(const kern_backend *backend, const kern_call *call, kern_level level)
{
    ASSERT((int)call->code >= 0 && call->code < OP_CODE_COUNT);
    if (backend->panels_bytes[call->code] == NULL) return 0;
    return backend->panels_bytes[call->code](call, level);
}

status kern_run(const kern_backend *backend, const kern_context *context, const kern_call *call)
{
    ASSERT((int)call->code >= 0 && call->code < OP_COMPUTE_COUNT);
    check_call(call);
    if (call->then != NULL) check_call(call->then);
    if (backend->run[call->code] == NULL) {
        return fail(ST_UNSUPPORTED, "backend %s has no kernel for %s", backend->name,
                    op_kind_of(call->code)->name);
    }
    const int threads =
        context != NULL && context->pool != NULL ? kern_pool_threads(context->pool) : 1;
    const int64_t workspace = kern_workspace_bytes(backend, call, threads);
    ASSERT(call->workspace_bytes >= workspace);
    ASSERT(workspace == 0 || ((uintptr_t)call->workspace % ALIGN_TENSOR) == 0);
    ASSERT(((uintptr_t)call->panels % ALIGN_TENSOR) == 0);
    return backend->run[call->code](context, call);
}
