// Gradients of adapters against central differences in double, on the layers of real models: fused
// and separate matrices, all and some of their parts, biases, norms of heads. The gradient of the
// layer's input is compared too, because it passes through the adapter's terms.
#include "base/host.h"
#include "kernels/backend_table.h"
#include "kernels/interpret.h"
#include "kernels/kernels_internal.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, LAYERS = 2 };

typedef struct subject {
    arena *a;
    op_quant quant;
    op_program *p;
    kern_interpret *it;
} subject;

static void must(status st)
{
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

// A value in [-1, 1) by tensor and element.
static double value_of(int64_t tensor, int64_t element)
{
    uint64_t x = (uint64_t)(tensor * 7919 + element + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (double)(x >> 11) * 0x1p-52 - 1.0;
}

// Rows of a weight in few bits. (All rows here are shorter than a block.)
static void bytes_fill(const subject *s, tensor_id t)
{
    const int64_t bytes = s->p->tensors[t].dims[1].scale;
    const int64_t rows = s->p->tensors[t].dims[0].scale;
    const int64_t columns = s->quant == QUANT_INT8 ? bytes - 4 : 2 * (bytes - 4);
    float x[QUANT_BLOCK];
    uint8_t row[QUANT_BLOCK + 4];
    assert_true(columns <= QUANT_BLOCK);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) x[k] = (float)value_of(t, i * columns + k);
        op_quant_row_encode(s->quant, x, columns, row);
        for (int64_t k = 0; k < bytes; k++) {
            kern_interpret_put(s->it, t, i * bytes + k, (double)row[k]);
        }
    }
}

static void fill(const subject *s)
{
    for (tensor_id t = 0; t < (tensor_id)s->p->tensor_count; t++) {
        const op_tensor *tensor = &s->p->tensors[t];
        const bool is_given = tensor->role == ROLE_INPUT || tensor->role == ROLE_WEIGHT ||
                              tensor->role == ROLE_CONSTANT || tensor->role == ROLE_INPUT_GRAD ||
                              tensor->role == ROLE_BATCH;
        if (!is_given || tensor->view_of != TENSOR_NONE) continue;
        if (tensor->type == DTYPE_U8) {
            bytes_fill(s, t);
            continue;
        }
        const int64_t count = kern_interpret_elements(s->it, t);
        for (int64_t e = 0; e < count; e++) {
            const double value = tensor->role == ROLE_BATCH ? (double)(e % SEQ) : value_of(t, e);
            kern_interpret_put(s->it, t, e, value);
        }
    }
}

// The second layer: no weight below it is frozen alone, so its input has a gradient.
typedef struct subject_kind {
    bool dora;
    op_quant quant;
} subject_kind;

static void subject_init(subject *s, const char *arch, const char *const *targets, int64_t count,
                         subject_kind kind)
{
    const host *h = host_real();
    run_config r = {.model = {.layers = LAYERS, .dim = 12, .heads = 2, .vocab = 20, .context = SEQ},
                    .train = {.seq = SEQ}};
    decoder_spec spec;
    memset(s, 0, sizeof(*s));
    s->quant = kind.quant;
    must(arena_create("adapter gradients", 0, &s->a));
    r.model.kv_heads = strcmp(arch, "gpt2") == 0 ? 2 : 1;
    r.model.ffn_dim = 8;
    r.model.arch = strcmp(arch, "gpt2") == 0    ? RUN_ARCH_GPT2
                   : strcmp(arch, "qwen2") == 0 ? RUN_ARCH_QWEN2
                                                : RUN_ARCH_QWEN3;
    must(model_spec_from_config(h, s->a, &r, &spec));
    const char **copy = NULL;
    must(arena_new(s->a, count + 1, &copy));
    for (int64_t i = 0; i < count; i++) copy[i] = targets[i];
    spec.adapter = (model_adapter){.rank = 2,
                                   .alpha = 3.0,
                                   .dora = kind.dora,
                                   .quant = kind.quant,
                                   .targets = {.items = copy, .count = count}};
    const model_options options = {
        .purpose = PURPOSE_TRAIN, .compute = DTYPE_F64, .grad = DTYPE_F64, .seq = SEQ};
    op_model *m = NULL;
    must(model_build(s->a, &spec, &options, &m));
    s->p = m->programs[m->layers[LAYERS].program]; // row 0 is the embedding
    for (int64_t t = 0; t < s->p->tensor_count; t++) {
        if (s->p->tensors[t].type < DTYPE_F64) s->p->tensors[t].type = DTYPE_F64;
    }
    static const kern_context ref = {.backend = &kern_backend_ref};
    kern_interpret_config wanted = {.program = s->p, .context = &ref, .loss_divisor = 1.0};
    wanted.bound.value[EXTENT_TOKENS] = ROWS;
    wanted.bound.value[EXTENT_SEQS] = SEQS;
    must(kern_interpret_create(s->a, &wanted, &s->it));
    fill(s);
}

// The lengths of DoRA count as constants in the backward pass. Where the forward list has run once,
// they stay as they are if it does not compute them again.
static void lengths_keep(const subject *s)
{
    int64_t kept = 0;
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    const int64_t count = s->p->lists[OP_FORWARD].count;
    op_node *nodes = s->p->lists[OP_FORWARD].nodes;
    for (int64_t i = 0; i < count; i++) {
        if (nodes[i].code != OP_ROW_SQUARES) nodes[kept++] = nodes[i];
    }
    s->p->lists[OP_FORWARD].count = kept;
}

static double loss(const subject *s)
{
    double sum = 0.0;
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    const tensor_id y = s->p->outputs[0], c = s->p->d_outputs[0];
    const int64_t count = kern_interpret_elements(s->it, y);
    for (int64_t e = 0; e < count; e++) {
        sum += kern_interpret_get(s->it, y, e) * kern_interpret_get(s->it, c, e);
    }
    return sum;
}

// The tensor that holds the gradient of t.
static tensor_id gradient_of(const subject *s, tensor_id t)
{
    if (s->p->inputs[0] == t) return s->p->d_inputs[0];
    for (tensor_id g = 0; g < (tensor_id)s->p->tensor_count; g++) {
        if (s->p->tensors[g].role == ROLE_WEIGHT_GRAD && s->p->tensors[g].of == t) return g;
    }
    return TENSOR_NONE;
}

static double slope(const subject *s, tensor_id t, int64_t element)
{
    const double step = 1e-5, here = kern_interpret_get(s->it, t, element);
    kern_interpret_put(s->it, t, element, here + step);
    const double above = loss(s);
    kern_interpret_put(s->it, t, element, here - step);
    const double below = loss(s);
    kern_interpret_put(s->it, t, element, here);
    return (above - below) / (2.0 * step);
}

static void tensor_check(const subject *s, tensor_id t)
{
    const int64_t count = kern_interpret_elements(s->it, t);
    const tensor_id d = gradient_of(s, t);
    double *got = NULL, worst = 0.0, largest = 1e-2;
    assert_int_not_equal(d, TENSOR_NONE);
    must(arena_new(s->a, count, &got));
    (void)loss(s);
    must(kern_interpret_run(s->it, OP_BACKWARD_INPUT, false));
    must(kern_interpret_run(s->it, OP_BACKWARD_WEIGHT, false));
    for (int64_t e = 0; e < count; e++) got[e] = kern_interpret_get(s->it, d, e);
    for (int64_t e = 0; e < count; e++) {
        const double want = slope(s, t, e), error = fabs(want - got[e]);
        worst = fmax(worst, isnan(error) ? HUGE_VAL : error);
        largest = fmax(largest, fabs(want));
    }
    if (worst > 1e-6 * largest) {
        print_error("the gradient of %s is off by %g of its largest\n", s->p->tensors[t].name,
                    worst / largest);
    }
    assert_true(worst <= 1e-6 * largest);
}

// Checks every trained weight; all others have no gradient. Returns the number of trained ones.
static int kind_check(const char *arch, const char *const *targets, int64_t count,
                      subject_kind kind)
{
    subject s;
    int trained = 0;
    subject_init(&s, arch, targets, count, kind);
    if (kind.dora) lengths_keep(&s);
    for (tensor_id t = 0; t < (tensor_id)s.p->tensor_count; t++) {
        const op_tensor *tensor = &s.p->tensors[t];
        if (tensor->role == ROLE_INPUT) tensor_check(&s, t);
        if (tensor->role != ROLE_WEIGHT || tensor->view_of != TENSOR_NONE) continue;
        const bool is_adapter = strstr(tensor->name, ".lora_") != NULL;
        assert_int_equal(is_adapter, !tensor->frozen);
        assert_int_equal(is_adapter, gradient_of(&s, t) != TENSOR_NONE);
        if (is_adapter) tensor_check(&s, t);
        trained += is_adapter ? 1 : 0;
    }
    arena_destroy(s.a);
    return trained;
}

static int model_check(const char *arch, const char *const *targets, int64_t count, bool dora)
{
    return kind_check(arch, targets, count, (subject_kind){.dora = dora});
}

static void all_matrices(void **state)
{
    (void)state;
    // A of q, k, v together, of out, of gate and up together, of down; a B each.
    assert_int_equal(model_check("qwen2", NULL, 0, false), 4 + 7);
    assert_int_equal(model_check("gpt2", NULL, 0, false), 4 + 4); // its qkv is one matrix in files
}

static void some_parts_of_fused_matrices(void **state)
{
    (void)state;
    static const char *const queries[] = {"q_proj", "v_proj"}, *const ups[] = {"mlp.up"};
    static const char *const keys[] = {"self_attn.k_proj", "layers.*.attn.out"};
    assert_int_equal(model_check("qwen2", queries, COUNT_OF(queries), false), 1 + 2);
    assert_int_equal(model_check("qwen3", queries, COUNT_OF(queries), false), 1 + 2);
    assert_int_equal(model_check("qwen3", keys, COUNT_OF(keys), false), 2 + 2);
    assert_int_equal(model_check("qwen2", ups, COUNT_OF(ups), false), 1 + 1);
}

// And a length for each row of each matrix, behind which the biases of qwen2 and gpt2 come.
static void lengths_of_rows(void **state)
{
    (void)state;
    static const char *const some[] = {"q_proj", "v_proj", "o_proj"};
    assert_int_equal(model_check("qwen2", NULL, 0, true), 4 + 7 + 7);
    assert_int_equal(model_check("gpt2", NULL, 0, true), 4 + 4 + 4);
    assert_int_equal(model_check("qwen3", some, COUNT_OF(some), true), 2 + 3 + 3);
}

// Differences see the numbers that the base model's bytes stand for.
static void base_in_few_bits(void **state)
{
    (void)state;
    static const char *const queries[] = {"q_proj", "v_proj"};
    for (op_quant quant = QUANT_INT8; quant <= QUANT_NF4; quant++) {
        assert_int_equal(kind_check("qwen2", NULL, 0, (subject_kind){.quant = quant}), 4 + 7);
        assert_int_equal(kind_check("gpt2", NULL, 0, (subject_kind){.quant = quant}), 4 + 4);
        assert_int_equal(kind_check("qwen3", queries, 2, (subject_kind){.quant = quant}), 1 + 2);
    }
    assert_int_equal(kind_check("qwen2", NULL, 0, (subject_kind){true, QUANT_NF4}), 4 + 7 + 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_matrices),
        cmocka_unit_test(some_parts_of_fused_matrices),
        cmocka_unit_test(lengths_of_rows),
        cmocka_unit_test(base_in_few_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
