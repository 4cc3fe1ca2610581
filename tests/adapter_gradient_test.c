// Gradients of adapters against central differences in double, on the layers of real models: fused
// and separate matrices, all and some of their parts, biases, norms of heads. The gradient of the
// layer's input is compared too, because it passes through the adapter's terms.
#include "base/host.h"
#include "fixtures/kernels/gradient_fixture.h"
#include "kernels/kernels_internal.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, LAYERS = 2 };

// Rows of a weight in few bits. (All rows here are shorter than a block.)
static void bytes_fill(const gradient_subject *s, tensor_id t, op_quant quant)
{
    const int64_t bytes = s->p->tensors[t].dims[1].scale;
    const int64_t rows = s->p->tensors[t].dims[0].scale;
    const int64_t columns = quant == QUANT_INT8 ? bytes - 4 : 2 * (bytes - 4);
    float x[QUANT_BLOCK];
    uint8_t row[QUANT_BLOCK + 4];
    assert_true(columns <= QUANT_BLOCK);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) x[k] = (float)test_uniform(11, t, i * columns + k);
        op_quant_row_encode(quant, x, columns, row);
        for (int64_t k = 0; k < bytes; k++) {
            kern_interpret_put(s->it, t, i * bytes + k, (double)row[k]);
        }
    }
}

static double position_of(const op_tensor *t, int64_t element)
{
    (void)t;
    return (double)(element % SEQ);
}

static double loss(const gradient_subject *s)
{
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    return gradient_outputs(s);
}

// The second layer: no weight below it is frozen alone, so its input has a gradient.
typedef struct subject_kind {
    bool dora;
    op_quant quant;
} subject_kind;

static void subject_init(gradient_subject *s, const char *arch, const char *const *targets,
                         int64_t count, subject_kind kind)
{
    const host *h = host_real();
    run_config r = {.model = {.layers = LAYERS, .dim = 12, .heads = 2, .vocab = 20, .context = SEQ},
                    .train = {.seq = SEQ}};
    decoder_spec spec;
    *s = (gradient_subject){.divisor = 1.0, .loss = loss};
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
    gradient_open(s, ROWS, SEQS, 0);
    gradient_fill(s, position_of);
    for (tensor_id t = 0; t < (tensor_id)s->p->tensor_count; t++) {
        const op_tensor *tensor = &s->p->tensors[t];
        if (tensor->type == DTYPE_U8 && gradient_is_given(tensor)) bytes_fill(s, t, kind.quant);
    }
}

// The lengths of DoRA count as constants in the backward pass. Where the forward list has run once,
// they stay as they are if it does not compute them again.
static void lengths_keep(const gradient_subject *s)
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

// Checks every trained weight; all others have no gradient. Returns the number of trained ones.
static int kind_check(const char *arch, const char *const *targets, int64_t count,
                      subject_kind kind)
{
    gradient_subject s;
    double first = 0.0;
    int trained = 0;
    subject_init(&s, arch, targets, count, kind);
    if (kind.dora) lengths_keep(&s);
    for (tensor_id t = 0; t < (tensor_id)s.p->tensor_count; t++) {
        const op_tensor *tensor = &s.p->tensors[t];
        if (tensor->role == ROLE_INPUT) assert_true(gradient_is_right(&s, arch, t));
        if (tensor->role != ROLE_WEIGHT || tensor->view_of != TENSOR_NONE) continue;
        const bool is_adapter = strstr(tensor->name, ".lora_") != NULL;
        assert_int_equal(is_adapter, !tensor->frozen);
        assert_int_equal(is_adapter, gradient_of(&s, t, 0, &first));
        if (is_adapter) assert_true(gradient_is_right(&s, arch, t));
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
