// Shapes and types from text, for the infer() of every row (op_internal.h explains the words).
#include "op/op_internal.h"

#include <stdio.h>
#include <string.h>

bool op_type_fits(char letter, dtype type)
{
    switch (letter) {
    case 'f':
    case 'g':
        return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16 || type == DTYPE_F64;
    case 's': // doubles where a test wants to see more digits
        return type == DTYPE_F32 || type == DTYPE_F64;
    case 'p':
        return type == DTYPE_F32;
    case 'i':
        return type == DTYPE_I32 || type == DTYPE_I64;
    case 'm':
        return op_type_fits('f', type) || op_type_fits('i', type) || type == DTYPE_U8;
    default:
        return letter == 'a';
    }
}

static const char *type_wanted(char kind)
{
    switch (kind) {
    case 'f':
    case 'g':
        return "a floating type";
    case 's':
    case 'p':
        return "fp32";
    default:
        return "an integer type";
    }
}

static dtype type_made(const op_program *p, char kind)
{
    switch (kind) {
    case 's':
        return p->compute == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    case 'g':
        return p->grad;
    case 'i':
        return DTYPE_I32;
    default:
        return p->compute;
    }
}

typedef struct extent_text {
    char text[48];
} extent_text;

static extent_text extent_print(extent e)
{
    static const char *const names[EXTENT_SYMBOL_COUNT] = {"", "tokens", "sequences", "cache",
                                                           "tokens of a rank"};
    extent_text out;
    const long long scale = (long long)e.scale;
    const char *most = e.bounded ? "<= " : "";
    if (e.symbol == EXTENT_ONE) {
        (void)snprintf(out.text, sizeof(out.text), "%s%lld", most, scale);
    } else if (scale == 1) {
        (void)snprintf(out.text, sizeof(out.text), "%s%s", most, names[e.symbol]);
    } else {
        (void)snprintf(out.text, sizeof(out.text), "%s%lld*%s", most, scale, names[e.symbol]);
    }
    return out;
}

// The position of an operand in its node, for errors.
typedef struct operand {
    const op_program *p;
    const char *op, *side;
    int at;
    tensor_id t;
    const char *word;
    int64_t length; // of the word
    bool any_count; // sent and received rows have their own counts
} operand;

static status dim_check(const operand *o, int dim, extent got, extent expected)
{
    if (extent_equal(got, expected)) return ST_OK;
    if (o->any_count && extent_bound_equal(got, expected)) return ST_OK;
    return fail(ST_MODEL, "%s: dim %d of %s %d (%s) is %s, expected %s as of the other operands",
                o->op, dim, o->side, o->at, op_at(o->p, o->t)->name, extent_print(got).text,
                extent_print(expected).text);
}

static status any_check(const operand *o, op_shapes *s)
{
    const op_tensor *t = op_at(o->p, o->t);
    if (t->ndim > 2) {
        return fail(ST_MODEL, "%s: %s %d (%s) has %d dims, expected 1 or 2", o->op, o->side, o->at,
                    t->name, t->ndim);
    }
    if (s->any_ndim == 0) {
        s->any_ndim = t->ndim;
        memcpy(s->any, t->dims, sizeof(s->any));
    }
    if (t->ndim != s->any_ndim) {
        return fail(ST_MODEL, "%s: %s %d (%s) has %d dims, expected %d as of the other operands",
                    o->op, o->side, o->at, t->name, t->ndim, s->any_ndim);
    }
    for (int d = 0; d < t->ndim; d++) TRY(dim_check(o, d, t->dims[d], s->any[d]));
    return ST_OK;
}

static status operand_check(const operand *o, op_shapes *s)
{
    const op_tensor *t = op_at(o->p, o->t);
    if (o->word[0] == '.') return ST_OK;
    if (!op_type_fits(o->word[0], t->type)) {
        return fail(ST_MODEL, "%s: %s %d (%s) is %s, expected %s", o->op, o->side, o->at, t->name,
                    dtype_name(t->type), type_wanted(o->word[0]));
    }
    if (o->word[1] == '*') return any_check(o, s);
    if (t->ndim != (int)o->length - 1) {
        return fail(ST_MODEL, "%s: %s %d (%s) has %d dims, expected %d", o->op, o->side, o->at,
                    t->name, t->ndim, (int)o->length - 1);
    }
    for (int d = 0; d < t->ndim; d++) {
        extent *known = &s->of[(unsigned char)o->word[1 + d]];
        if (known->scale < 0) *known = t->dims[d];
        TRY(dim_check(o, d, t->dims[d], *known));
    }
    return ST_OK;
}

const char *op_word_next(const char *word)
{
    word += strcspn(word, " ");
    return word + strspn(word, " ");
}

int op_word_count(const char *words)
{
    int count = 0;
    for (const char *word = words; *word != '\0'; word = op_word_next(word)) count++;
    return count;
}

status op_shapes_in_as(const op_program *p, const op_node *node, const char *words,
                       op_shapes *shapes)
{
    *shapes = (op_shapes){.any_ndim = 0};
    for (int64_t i = 0; i < COUNT_OF(shapes->of); i++) shapes->of[i].scale = -1;
    int i = 0;
    for (const char *word = words; *word != '\0'; word = op_word_next(word), i++) {
        if (node->in[i] == TENSOR_NONE) continue; // op_append knows which may be missing
        const operand o = {.p = p,
                           .op = op_kind_of(node->code)->name,
                           .side = "input",
                           .at = i,
                           .t = node->in[i],
                           .word = word,
                           .length = (int64_t)strcspn(word, " "),
                           .any_count = op_communicates(node->code)};
        TRY(operand_check(&o, shapes));
    }
    return ST_OK;
}

status op_shapes_in(const op_program *p, const op_node *node, op_shapes *shapes)
{
    return op_shapes_in_as(p, node, op_kind_of(node->code)->in, shapes);
}

void op_shapes_bind(op_shapes *shapes, char letter, extent e)
{
    shapes->of[(unsigned char)letter] = e;
}

status op_shapes_constant(const op_node *node, const op_shapes *shapes, char letter, int64_t *out)
{
    const extent e = shapes->of[(unsigned char)letter];
    if (e.symbol != EXTENT_ONE || e.scale <= 0) {
        return fail(ST_MODEL, "%s: columns must be a positive constant, got %s",
                    op_kind_of(node->code)->name, extent_print(e).text);
    }
    *out = e.scale;
    return ST_OK;
}

static bool name_make(const op_program *p, const char *prefix, const char *name, int n,
                      char out[OP_NAME_BYTES])
{
    char number[16] = "";
    if (n > 1) (void)snprintf(number, sizeof(number), ".%d", n);
    const int width = OP_NAME_BYTES - 1 - (int)strlen(prefix) - (int)strlen(number);
    (void)snprintf(out, OP_NAME_BYTES, "%s%.*s%s", prefix, width, name, number);
    for (int64_t i = 0; i < p->tensor_count; i++) {
        if (strcmp(p->tensors[i].name, out) == 0) return false;
    }
    return true;
}

// Numbers are assigned in order, so bisection finds the first free one: a ring of 64 ranks has
// hundreds of tensors of one name.
void op_name_unique(const op_program *p, const char *prefix, const char *name,
                    char out[OP_NAME_BYTES])
{
    int taken = 0, free = 1;
    while (!name_make(p, prefix, name, free, out)) {
        taken = free;
        free *= 2;
    }
    while (free - taken > 1) {
        const int n = taken + (free - taken) / 2;
        *(name_make(p, prefix, name, n, out) ? &free : &taken) = n;
    }
    (void)name_make(p, prefix, name, free, out);
}

static status output_make(op_program *p, op_node *node, int at, const char *word, int64_t length,
                          const char *name, const op_shapes *s)
{
    op_tensor t = {.type = type_made(p, word[0]),
                   .role = word[0] == 'g' ? ROLE_WEIGHT_GRAD : ROLE_ACTIVATION,
                   .of = TENSOR_NONE,
                   .view_of = TENSOR_NONE};
    memset(t.cut_dim, -1, sizeof(t.cut_dim));
    if (word[1] == '*') {
        t.ndim = s->any_ndim;
        memcpy(t.dims, s->any, sizeof(t.dims));
    } else {
        t.ndim = (int)length - 1;
        for (int d = 0; d < t.ndim; d++) {
            t.dims[d] = s->of[(unsigned char)word[1 + d]];
            ASSERT(t.dims[d].scale >= 0); // the row's own text: every letter is bound
        }
    }
    char full[OP_NAME_BYTES];
    (void)snprintf(full, sizeof(full), "%s.%.*s", op_kind_of(node->code)->name,
                   (int)strcspn(name, " "), name);
    op_name_unique(p, "", full, t.name);
    return op_tensor_add(p, &t, &node->out[at]);
}

status op_shapes_out_as(op_program *p, op_node *node, uint32_t wanted, const char *words,
                        op_shapes *shapes)
{
    const op_kind *kind = op_kind_of(node->code);
    int i = 0;
    const char *name = kind->made;
    for (const char *word = words; *word != '\0';
         word = op_word_next(word), name = op_word_next(name)) {
        const int64_t length = (int64_t)strcspn(word, " ");
        if (node->out[i] != TENSOR_NONE) {
            const operand o = {.p = p,
                               .op = kind->name,
                               .side = "output",
                               .at = i,
                               .t = node->out[i],
                               .word = word,
                               .length = length,
                               .any_count = op_communicates(node->code)};
            TRY(operand_check(&o, shapes));
        } else if ((kind->optional_out >> i & 1u) == 0 || (wanted >> i & 1u) != 0) {
            TRY(output_make(p, node, i, word, length, name, shapes));
        }
        i++;
    }
    return ST_OK;
}

status op_shapes_out(op_program *p, op_node *node, uint32_t wanted, op_shapes *shapes)
{
    return op_shapes_out_as(p, node, wanted, op_kind_of(node->code)->out, shapes);
}

status op_infer_signature(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

void op_check_sequences(const op_facts *f)
{
    const int64_t rows = op_fact(f, 'N');
    ASSERT(rows == 0 || f->seq > 0);
    ASSERT(rows == 0 || rows % f->seq == 0);
    const int64_t lengths = op_fact(f, 'B');
    if (lengths < 0) return;
    ASSERT(lengths * f->seq == rows);
    const int64_t pages = op_fact(f, 'Q'), page = f->attrs->page;
    if (pages < 0) {
        ASSERT(lengths * f->cache_seq == op_fact(f, 'S'));
        return;
    }
    ASSERT(page > 0 && op_fact(f, 'S') % page == 0);
    ASSERT(lengths == 0 || (pages % lengths == 0 && pages / lengths * page >= f->cache_seq));
}
