// Values of weights: initial values depend on part and element only, for every way of reading them;
// file values are right for all names, prefixes, layouts and types; an unsuitable file gives one
// error with all differences.
#include "base/rng.h"
#include "fixtures/base/test_paths.h"
#include "model/arch/arch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OK(call)                                                 \
    do {                                                         \
        if ((call) != ST_OK) fail_msg("%s", error_last()->text); \
    } while (0)

static arena *arena_make(void)
{
    arena *a = NULL;
    OK(arena_create("test", 0, &a));
    return a;
}

static decoder_spec small(const char *arch)
{
    decoder_spec s = model_arch_spec(model_arch_find(arch));
    s.layers = 2;
    s.dim = 24;
    s.heads = 4;
    s.kv_heads = strcmp(arch, "gpt2") == 0 ? 4 : 2;
    s.head_dim = 6;
    s.ffn_dim = 40;
    s.vocab = 31;
    s.context = 16;
    if (model_arch_find(arch)->experts != NULL) {
        s.experts = (model_experts){.count = 3,
                                    .top_k = 2,
                                    .ffn_dim = s.ffn_dim,
                                    .every = 1,
                                    .bias = model_arch_find(arch)->expert_bias};
    }
    return s;
}

static op_model *build(arena *a, const decoder_spec *s)
{
    op_model *m = NULL;
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 8};
    OK(model_build(a, s, &options, &m));
    return m;
}

static int64_t weight_index(const op_model *m, const char *name)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        if (strcmp(m->weights[w].name, name) == 0) return w;
    }
    fail_msg("no weight %s", name);
    return -1;
}

static float *values_new(arena *a, const op_model *m, int64_t w)
{
    float *values = NULL;
    OK(arena_new(a, m->weights[w].rows * m->weights[w].columns, &values));
    return values;
}

// ---- initial values -----------------------------------------------------------------------------

static void initial_values_are_of_parts(void **state)
{
    (void)state;
    arena *a = arena_make();
    const decoder_spec s = small("llama");
    const op_model *m = build(a, &s);
    int64_t w = weight_index(m, "layers.1.attn.qkv");
    float *v = values_new(a, m, w);
    model_weight_init(m, w, 9, v);
    const uint64_t q = rng_name_key("layers.1.attn.q"), k = rng_name_key("layers.1.attn.k");
    for (int64_t i = 0; i < 24 * 24; i++) {
        assert_true(v[i] == rng_tensor_normal(9, q, i) * 0.02f);
    }
    for (int64_t i = 0; i < 12 * 24; i++) {
        assert_true(v[24 * 24 + i] == rng_tensor_normal(9, k, i) * 0.02f);
    }
    // Projections into the residual stream start smaller by 1 / sqrt(2 layers).
    w = weight_index(m, "layers.0.mlp.down");
    v = values_new(a, m, w);
    model_weight_init(m, w, 9, v);
    assert_true(v[5] == rng_tensor_normal(9, rng_name_key("layers.0.mlp.down"), 5) * 0.01f);
    w = weight_index(m, "norm.weight");
    model_weight_init(m, w, 9, v);
    assert_true(v[0] == 1.0f && v[23] == 1.0f);
    arena_destroy(a);
}

static void ranges_are_the_whole(void **state)
{
    (void)state;
    arena *a = arena_make();
    const decoder_spec s = small("gpt2");
    const op_model *m = build(a, &s);
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        float *whole = values_new(a, m, w), *pieces = values_new(a, m, w);
        model_weight_init(m, w, 3, whole);
        for (int64_t at = 0, step = 1; at < count; at += step, step = step * 3 % 101) {
            model_weight_init_range(m, w, 3, at, min_i64(step, count - at), pieces + at);
            if (step == 0) break;
        }
        assert_memory_equal(whole, pieces, (size_t)count * sizeof(float));
    }
    arena_destroy(a);
}

// ---- files --------------------------------------------------------------------------------------

typedef enum tied_head { HEAD_NONE, HEAD_SAME, HEAD_OTHER } tied_head; // of the file

typedef struct wish {  // the difference between a file and the one that transformers saves
    const char *strip; // this prefix is missing
    const char *skip;  // this tensor is missing
    const char *extra; // one more tensor, of 3 elements
    const char *flat;  // this tensor has one dim
    dtype type;
    tied_head head;
} wish;

static float stored(int64_t tensor, int64_t element)
{
    return (float)((tensor * 37 + element) % 251 - 125) * 0.0078125f; // exact in bf16 and fp16
}

static void tensor_put(safetensors_writer *out, dtype type, int64_t tensor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        unsigned char bytes[8];
        dtype_store(type, bytes, 0, (double)stored(tensor, i));
        OK(safetensors_writer_put(out, bytes, dtype_bytes(type)));
    }
}

static void tensor_declare(safetensors_writer *out, const wish *wanted, const model_hf_tensor *hf,
                           const op_weight *w)
{
    const int64_t all = hf->rows * w->columns;
    const size_t strip = wanted->strip == NULL ? 0 : strlen(wanted->strip);
    const bool has = strip > 0 && strncmp(hf->name, wanted->strip, strip) == 0;
    const bool flat = wanted->flat != NULL && strcmp(wanted->flat, hf->name) == 0;
    OK(safetensors_writer_declare(out, hf->name + (has ? strip : 0), wanted->type,
                                  flat ? 1 : hf->ndim, flat ? &all : hf->dims));
}

// Declares or writes the head of a tied model, whose embedding is tensor `n`.
static void embed_pass(safetensors_writer *out, const wish *wanted, const model_hf_tensor *hf,
                       const op_weight *w, int64_t n, bool declare)
{
    model_hf_tensor head = *hf;
    head.name = "lm_head.weight";
    if (wanted->head == HEAD_NONE) return;
    if (declare) {
        tensor_declare(out, wanted, &head, w);
    } else {
        tensor_put(out, wanted->type, wanted->head == HEAD_OTHER ? 99 : n, hf->rows * w->columns);
    }
}

// Declares or writes all tensors.
static void tensors_pass(arena *a, safetensors_writer *out, const decoder_spec *s,
                         const op_model *m, const wish *wanted, bool declare)
{
    const int64_t three = 3;
    for (int64_t w = 0, n = 0; w < m->weight_count; w++) {
        model_hf_tensor *hf = NULL;
        int64_t count = 0;
        OK(model_hf_tensors(a, s, m, w, &hf, &count));
        if (strcmp(m->weights[w].name, "embed.tokens") == 0) {
            embed_pass(out, wanted, &hf[0], &m->weights[w], n, declare);
        }
        for (int64_t i = 0; i < count; i++, n++) {
            if (wanted->skip != NULL && strcmp(wanted->skip, hf[i].name) == 0) continue;
            if (declare) {
                tensor_declare(out, wanted, &hf[i], &m->weights[w]);
            } else {
                tensor_put(out, wanted->type, n, hf[i].rows * m->weights[w].columns);
            }
        }
    }
    if (wanted->extra == NULL) return;
    if (declare) {
        OK(safetensors_writer_declare(out, wanted->extra, DTYPE_F32, 1, &three));
    } else {
        tensor_put(out, DTYPE_F32, 99, three);
    }
}

// Writes a file of the model and opens it.
static safetensors *file_make(arena *a, const char *folder, const decoder_spec *s,
                              const op_model *m, const wish *wanted)
{
    char path[128];
    safetensors_writer *out = NULL;
    safetensors *set = NULL;
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    OK(safetensors_writer_create(host_real(), path, &out));
    tensors_pass(a, out, s, m, wanted, true);
    tensors_pass(a, out, s, m, wanted, false);
    OK(safetensors_writer_finish(out));
    safetensors_writer_destroy(out);
    OK(safetensors_open_mapped(host_real(), path, &set));
    return set;
}

static void values_check(arena *a, const safetensors *set, const decoder_spec *s, const op_model *m)
{
    for (int64_t w = 0, n = 0; w < m->weight_count; w++) {
        const int64_t columns = m->weights[w].columns;
        float *values = values_new(a, m, w);
        model_hf_tensor *hf = NULL;
        int64_t count = 0;
        OK(model_weight_read(set, s, m, w, values));
        OK(model_hf_tensors(a, s, m, w, &hf, &count));
        for (int64_t i = 0; i < count; i++, n++) {
            for (int64_t e = 0; e < hf[i].rows * columns; e++) {
                const int64_t row = e / columns, column = e % columns;
                const int64_t at = model_hf_at(&hf[i], columns, row, column);
                assert_true(values[hf[i].row_begin * columns + e] == stored(n, at));
            }
        }
    }
}

static void files_are_read(void **state)
{
    (void)state;
    static const char *const archs[] = {"gpt2",  "llama", "mistral",   "mixtral",
                                        "qwen2", "qwen3", "qwen3_moe", "gpt_oss"};
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    char folder[64];
    assert_non_null(test_scratch(folder));
    for (int64_t i = 0; i < COUNT_OF(archs); i++) {
        for (int64_t k = 0; k < COUNT_OF(types); k++) {
            arena *a = arena_make();
            decoder_spec s = small(archs[i]);
            const model_arch *arch = model_arch_find(archs[i]);
            s.tied = k == 1;
            if (i == 1) s.qkv_bias = s.out_bias = s.mlp_bias = true;
            const op_model *m = build(a, &s);
            const wish wanted = {.type = types[k],
                                 .strip = k == 2 ? arch->prefix : NULL,
                                 .head = k == 1 ? HEAD_SAME : HEAD_NONE,
                                 .extra = i == 0 ? "transformer.h.1.attn.bias"
                                                 : "model.layers.0.self_attn.rotary_emb.inv_freq"};
            safetensors *set = file_make(a, folder, &s, m, &wanted);
            OK(model_hf_check(a, set, &s, m));
            values_check(a, set, &s, m);
            safetensors_close(set);
            arena_destroy(a);
        }
    }
    test_scratch_remove(folder);
}

// A weight that stacks experts has the gate of an expert, then its up, then those of the next one.
static void experts_are_stacked(void **state)
{
    (void)state;
    arena *a = arena_make();
    const decoder_spec s = small("mixtral");
    const op_model *m = build(a, &s);
    model_hf_tensor *hf = NULL;
    int64_t count = 0;
    const int64_t w = weight_index(m, "layers.1.mlp.experts.gate_up");
    OK(model_hf_tensors(a, &s, m, w, &hf, &count));
    assert_int_equal(m->weights[w].rows, 3 * 2 * 40);
    assert_int_equal(count, 3 * 2);
    for (int64_t i = 0; i < count; i++) {
        char name[96];
        snprintf(name, sizeof(name), "model.layers.1.block_sparse_moe.experts.%d.w%d.weight",
                 (int)(i / 2), i % 2 == 0 ? 1 : 3);
        assert_string_equal(hf[i].name, name);
        assert_int_equal(hf[i].row_begin, 40 * i);
        assert_int_equal(hf[i].rows, 40);
    }
    arena_destroy(a);
}

// gpt-oss stacks all experts in one tensor, transposed, where rows of gate and up alternate.
static void stacked_tensors_are_mapped(void **state)
{
    (void)state;
    arena *a = arena_make();
    const decoder_spec s = small("gpt_oss");
    const op_model *m = build(a, &s);
    model_hf_tensor *hf = NULL;
    int64_t count = 0;
    OK(model_hf_tensors(a, &s, m, weight_index(m, "layers.1.mlp.experts.gate_up"), &hf, &count));
    assert_int_equal(count, 1);
    assert_string_equal(hf[0].name, "model.layers.1.mlp.experts.gate_up_proj");
    assert_true(hf[0].ndim == 3 && hf[0].dims[0] == 3 && hf[0].dims[1] == 24 &&
                hf[0].dims[2] == 80);
    // Expert 1, gate row 5 and up row 5, column 2: (1, 2, 10) and (1, 2, 11).
    assert_int_equal(model_hf_at(&hf[0], 24, 80 + 5, 2), (24 + 2) * 80 + 10);
    assert_int_equal(model_hf_at(&hf[0], 24, 80 + 40 + 5, 2), (24 + 2) * 80 + 11);
    OK(model_hf_tensors(a, &s, m, weight_index(m, "layers.0.mlp.experts.gate_up.bias"), &hf,
                        &count));
    assert_true(hf[0].ndim == 2 && hf[0].dims[0] == 3 && hf[0].dims[1] == 80);
    assert_int_equal(model_hf_at(&hf[0], 1, 160 + 41, 0), 160 + 3);
    arena_destroy(a);
}

enum { BLOCK_ROWS = 48, BLOCK_COLUMNS = 32 }; // down of 3 experts: (16, 32)

// Declares or writes the tensors of gpt-oss, with the down matrices in blocks of 4 bits whose bytes
// are their index.
static void blocks_pass(arena *a, safetensors_writer *out, const decoder_spec *s, const op_model *m,
                        bool declare)
{
    const int64_t dims[4] = {3, 16, 1, 16};
    for (int64_t w = 0; w < m->weight_count; w++) {
        model_hf_tensor *hf = NULL;
        int64_t count = 0;
        OK(model_hf_tensors(a, s, m, w, &hf, &count));
        const bool in_blocks = strstr(hf[0].name, "down_proj") != NULL && hf[0].ndim == 3;
        for (int64_t i = 0; i < count && !in_blocks; i++) {
            if (declare) {
                OK(safetensors_writer_declare(out, hf[i].name, DTYPE_BF16, hf[i].ndim, hf[i].dims));
            } else {
                tensor_put(out, DTYPE_BF16, w, hf[i].rows * m->weights[w].columns);
            }
        }
        if (!in_blocks) continue;
        for (int part = 0; part < 2; part++) {
            char name[128];
            snprintf(name, sizeof(name), "%s_%s", hf[0].name, part == 0 ? "blocks" : "scales");
            if (declare) {
                OK(safetensors_writer_declare(out, name, DTYPE_U8, 4 - part, dims));
                continue;
            }
            for (int64_t i = 0; i < (part == 0 ? BLOCK_ROWS * 16 : BLOCK_ROWS); i++) {
                const unsigned char byte = (unsigned char)(part == 0 ? i * 7 : 120 + i % 12);
                OK(safetensors_writer_put(out, &byte, 1));
            }
        }
    }
}

// Values of the Microscaling Formats' specification: 1 sign, 2 exponent and 1 mantissa bits.
static double four_bits(unsigned bits)
{
    const unsigned exponent = bits >> 1 & 3u, mantissa = bits & 1u;
    const double size =
        exponent == 0 ? 0.5 * mantissa : ldexp(1.0 + 0.5 * mantissa, (int)exponent - 1);
    return (bits & 8u) != 0 ? -size : size;
}

static void blocks_are_dequantized(void **state)
{
    (void)state;
    char folder[64], path[128];
    arena *a = arena_make();
    decoder_spec s = small("gpt_oss");
    s.ffn_dim = s.experts.ffn_dim = BLOCK_COLUMNS;
    s.dim = 16;
    s.head_dim = 4;
    const op_model *m = build(a, &s);
    safetensors_writer *out = NULL;
    safetensors *set = NULL;
    assert_non_null(test_scratch(folder));
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    OK(safetensors_writer_create(host_real(), path, &out));
    blocks_pass(a, out, &s, m, true);
    blocks_pass(a, out, &s, m, false);
    OK(safetensors_writer_finish(out));
    safetensors_writer_destroy(out);
    OK(safetensors_open_mapped(host_real(), path, &set));
    OK(model_hf_check(a, set, &s, m));
    const int64_t w = weight_index(m, "layers.1.mlp.experts.down");
    float *values = values_new(a, m, w);
    OK(model_weight_read(set, &s, m, w, values));
    for (int64_t i = 0; i < BLOCK_ROWS * BLOCK_COLUMNS; i++) {
        const int64_t row = i / BLOCK_COLUMNS;
        const unsigned byte = (unsigned char)(i / 2 * 7),
                       bits = i % 2 == 0 ? byte & 15u : byte >> 4;
        assert_true((double)values[i] == ldexp(four_bits(bits), (int)(120 + row % 12) - 127));
    }
    safetensors_close(set);
    // Another width than the blocks have.
    s.ffn_dim = s.experts.ffn_dim = 2 * BLOCK_COLUMNS;
    OK(safetensors_open_mapped(host_real(), path, &set));
    assert_int_equal(model_hf_check(a, set, &s, build(a, &s)), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "in blocks of 4 bits that do not fit"));
    safetensors_close(set);
    arena_destroy(a);
    test_scratch_remove(folder);
}

// The head alone is enough of a tied pair; a head with other values would be lost.
static void heads_of_tied_models(void **state)
{
    (void)state;
    char folder[64];
    arena *a = arena_make();
    decoder_spec s = small("llama");
    s.tied = true;
    const op_model *m = build(a, &s);
    assert_non_null(test_scratch(folder));
    const wish alone = {.type = DTYPE_BF16, .head = HEAD_SAME, .skip = "model.embed_tokens.weight"};
    safetensors *set = file_make(a, folder, &s, m, &alone);
    OK(model_hf_check(a, set, &s, m));
    values_check(a, set, &s, m);
    safetensors_close(set);
    const wish other = {.type = DTYPE_F16, .head = HEAD_OTHER};
    set = file_make(a, folder, &s, m, &other);
    assert_int_equal(model_hf_check(a, set, &s, m), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "lm_head.weight differs from model.embed_tokens"));
    assert_non_null(strstr(error_last()->text, "tie_word_embeddings"));
    safetensors_close(set);
    const wish wrapped = {.type = DTYPE_F32, .extra = "module.model.norm.weight"};
    set = file_make(a, folder, &s, m, &wrapped);
    assert_int_equal(model_hf_check(a, set, &s, m), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "save model.module.state_dict()"));
    safetensors_close(set);
    arena_destroy(a);
    test_scratch_remove(folder);
}

static void misfits_are_reported(void **state)
{
    (void)state;
    static const struct {
        wish wanted;
        const char *says[2];
    } rows[] = {
        {{.type = DTYPE_F32, .skip = "model.layers.1.mlp.up_proj.weight"},
         {"model.layers.1.mlp.up_proj.weight is missing", ""}},
        {{.type = DTYPE_F32, .extra = "model.layers.2.mlp.up_proj.weight"},
         {"model.layers.2.mlp.up_proj.weight is not part of this model", ""}},
        {{.type = DTYPE_F32, .extra = "lm_head.bias", .flat = "lm_head.weight"},
         {"lm_head.weight has shape [744], expected [31, 24]", "lm_head.bias is not part"}},
        {{.type = DTYPE_F64}, {"model.embed_tokens.weight is stored as", "and 9 more"}},
    };
    char folder[64];
    assert_non_null(test_scratch(folder));
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        arena *a = arena_make();
        const decoder_spec s = small("llama");
        const op_model *m = build(a, &s);
        safetensors *set = file_make(a, folder, &s, m, &rows[i].wanted);
        assert_int_equal(model_hf_check(a, set, &s, m), ST_MODEL);
        for (int k = 0; k < 2; k++) {
            if (strstr(error_last()->text, rows[i].says[k]) == NULL) {
                fail_msg("%s\nwithout: %s", error_last()->text, rows[i].says[k]);
            }
        }
        safetensors_close(set);
        arena_destroy(a);
    }
    test_scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_are_of_parts),
        cmocka_unit_test(ranges_are_the_whole),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(experts_are_stacked),
        cmocka_unit_test(stacked_tensors_are_mapped),
        cmocka_unit_test(blocks_are_dequantized),
        cmocka_unit_test(heads_of_tied_models),
        cmocka_unit_test(misfits_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
