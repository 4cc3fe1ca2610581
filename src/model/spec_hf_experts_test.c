// config.json files of models with experts: parameter counts, in total and per token, match
// published figures; unsupported files are refused.
#include "model/arch/arch.h"
#include "model/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("spec", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

static status read_text(const char *bytes, decoder_spec *out)
{
    json *root = NULL;
    assert_int_equal(json_parse(bytes, (int64_t)strlen(bytes), "config.json", &root), ST_OK);
    const status st = model_spec_from_json(a, root, "config.json", out);
    json_free(root);
    return st;
}

#define SHAPE(type, layers, dim, heads, kv, vocab)                                              \
    "{\"model_type\": \"" type "\", \"num_hidden_layers\": " #layers ", \"hidden_size\": " #dim \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv                      \
    ", \"vocab_size\": " #vocab ", \"max_position_embeddings\": 4096, "

typedef struct published {
    const char *name, *config;
    double total, active; // billions; active 0: published figures count differently
} published;

static const published models[] = {
    {"Mixtral 8x7B",
     SHAPE("mixtral", 32, 4096, 32, 8, 32000) "\"intermediate_size\": 14336, "
                                              "\"num_local_experts\": 8, "
                                              "\"num_experts_per_tok\": 2}",
     46.703, 12.88},
    {"Qwen2-57B-A14B",
     SHAPE("qwen2_moe", 28, 3584, 28, 4, 151936) "\"intermediate_size\": 18944, "
                                                 "\"moe_intermediate_size\": 2560, "
                                                 "\"shared_expert_intermediate_size\": 20480, "
                                                 "\"num_experts\": 64, \"num_experts_per_tok\": 8}",
     57.4, 14.2},
    {"Qwen3-235B-A22B",
     SHAPE("qwen3_moe", 94, 4096, 64, 4, 151936) "\"head_dim\": 128, \"intermediate_size\": 12288, "
                                                 "\"moe_intermediate_size\": 1536, "
                                                 "\"decoder_sparse_step\": 1, "
                                                 "\"mlp_only_layers\": [], \"num_experts\": 128, "
                                                 "\"num_experts_per_tok\": 8}",
     235.1, 22.2},
    {"DeepSeek-V2",
     SHAPE("deepseek_v2", 60, 5120, 128, 128, 102400) "\"intermediate_size\": 12288, "
                                                      "\"moe_intermediate_size\": 1536, "
                                                      "\"n_routed_experts\": 160, "
                                                      "\"num_experts_per_tok\": 6, "
                                                      "\"n_shared_experts\": 2, "
                                                      "\"first_k_dense_replace\": 1, "
                                                      "\"q_lora_rank\": 1536, "
                                                      "\"kv_lora_rank\": 512, "
                                                      "\"qk_nope_head_dim\": 128, "
                                                      "\"qk_rope_head_dim\": 64, "
                                                      "\"v_head_dim\": 128}",
     235.7, 21.4},
    {"DeepSeek-V3",
     SHAPE("deepseek_v3", 61, 7168, 128, 128,
           129280) "\"intermediate_size\": 18432, "
                   "\"moe_intermediate_size\": 2048, "
                   "\"n_routed_experts\": 256, "
                   "\"num_experts_per_tok\": 8, "
                   "\"n_shared_experts\": 1, "
                   "\"first_k_dense_replace\": 3, "
                   "\"moe_layer_freq\": 1, "
                   "\"quantization_config\": {\"fmt\": \"e4m3\"}, "
                   "\"q_lora_rank\": 1536, "
                   "\"kv_lora_rank\": 512, "
                   "\"qk_nope_head_dim\": 128, "
                   "\"qk_rope_head_dim\": 64, "
                   "\"v_head_dim\": 128}",
     671.0, 37.5},
    {"DBRX",
     "{\"model_type\": \"dbrx\", \"d_model\": 6144, \"n_heads\": 48, \"n_layers\": 40, "
     "\"max_seq_len\": 32768, \"vocab_size\": 100352, "
     "\"attn_config\": {\"kv_n_heads\": 8, \"clip_qkv\": 8, \"rope_theta\": 500000}, "
     "\"ffn_config\": {\"ffn_hidden_size\": 10752, \"moe_num_experts\": 16, \"moe_top_k\": 4}}",
     131.6, 36.5},
    {"Llama 4 Scout",
     "{\"model_type\": \"llama4\", "
     "\"text_config\": " SHAPE(
         "llama4_text", 48, 5120, 40, 8,
         202048) "\"head_dim\": 128, "
                 "\"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"num_local_experts\": 16, "
                 "\"num_experts_per_tok\": 1, \"interleave_moe_layer_step\": 1}}",
     107.8, 17.2},
    {"Llama 4 Maverick",
     "{\"model_type\": \"llama4\", "
     "\"text_config\": " SHAPE(
         "llama4_text", 48, 5120, 40, 8,
         202048) "\"head_dim\": 128, "
                 "\"intermediate_size\": 8192, \"intermediate_size_mlp\": 16384, \"num_local_experts\": 128, "
                 "\"num_experts_per_tok\": 1, \"interleave_moe_layer_step\": 2}}",
     400.7, 17.2},
    {"gpt-oss-120b",
     SHAPE("gpt_oss", 36, 2880, 64, 8, 201088) "\"head_dim\": 64, \"attention_bias\": true, "
                                               "\"intermediate_size\": 2880, "
                                               "\"num_local_experts\": 128, "
                                               "\"num_experts_per_tok\": 4}",
     116.83, 0.0},
    {"gpt-oss-20b",
     SHAPE("gpt_oss", 24, 2880, 64, 8, 201088) "\"head_dim\": 64, \"attention_bias\": true, "
                                               "\"intermediate_size\": 2880, "
                                               "\"num_local_experts\": 32, "
                                               "\"num_experts_per_tok\": 4}",
     20.91, 0.0},
};

static void parameters_are_the_published_ones(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(models); i++) {
        const published *m = &models[i];
        decoder_spec s;
        model_counts counts;
        const status st = read_text(m->config, &s);
        if (st != ST_OK) print_error("%s: %s\n", m->name, error_last()->text);
        assert_int_equal(st, ST_OK);
        model_count(&s, &counts);
        const double total = (double)counts.total * 1e-9, active = (double)counts.active * 1e-9;
        const bool is_right = fabs(total / m->total - 1.0) < 0.003 &&
                              (m->active == 0.0 || fabs(active / m->active - 1.0) < 0.01);
        if (!is_right) print_error("%s: %.3f, %.3f\n", m->name, total, active);
        assert_true(is_right);
    }
}

// The layers of the programs have as many weights as are counted.
static void built_as_counted(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(models); i++) {
        decoder_spec s;
        model_counts counts;
        op_model *m = NULL;
        model_options options = {.purpose = PURPOSE_TRAIN,
                                 .compute = DTYPE_BF16,
                                 .grad = DTYPE_F32,
                                 .seq = 4096,
                                 .sizes_only = true};
        assert_int_equal(read_text(models[i].config, &s), ST_OK);
        model_count(&s, &counts);
        assert_int_equal(model_build(a, &s, &options, &m), ST_OK);
        assert_int_equal(m->parameters, counts.total);
        assert_int_equal(m->gemm_parameters, counts.gemm);
        // Building for execution is refused with a message, unless arch/ has a row for the model.
        options.sizes_only = false;
        options.seq = 8;
        if (!model_is_planned_only(&s)) {
            assert_int_equal(model_build(a, &s, &options, &m), ST_OK);
            continue;
        }
        assert_int_equal(model_build(a, &s, &options, &m), ST_UNSUPPORTED);
        assert_non_null(strstr(error_last()->text, "cannot be trained yet"));
        error_clear();
    }
}

static void layers_alternate(void **state)
{
    (void)state;
    decoder_spec s;
    assert_int_equal(read_text(models[7].config, &s), ST_OK); // every second one has experts
    for (int64_t i = 0; i < s.layers; i++) assert_int_equal(model_has_experts(&s, i), i % 2 == 1);
    assert_int_equal(read_text(models[4].config, &s), ST_OK); // all but the first three
    for (int64_t i = 0; i < s.layers; i++) assert_int_equal(model_has_experts(&s, i), i >= 3);
}

static decoder_spec with_experts(const char *arch, model_experts e)
{
    decoder_spec s = model_arch_spec(model_arch_find(arch));
    s.layers = 4;
    s.dim = 16;
    s.heads = s.kv_heads = 2;
    s.head_dim = 8;
    s.ffn_dim = 24;
    s.vocab = 10;
    s.context = 8;
    s.experts = e;
    model_experts_arch(&s);
    return s;
}

// Forms of experts that an architecture's files hold are written and read back; others stay as they
// are and can only be planned.
static void forms_are_written(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *becomes; // becomes NULL: planned only
        model_experts e;
    } rows[] = {
        {"llama", "mixtral", {.count = 4, .top_k = 2, .ffn_dim = 12, .every = 1}},
        {"mistral", "mixtral", {.count = 4, .top_k = 2, .ffn_dim = 24, .every = 1}},
        {"qwen3",
         "qwen3_moe",
         {.count = 4, .top_k = 2, .ffn_dim = 12, .every = 1, .unscaled = true}},
        {"qwen3",
         "qwen3_moe",
         {.count = 4, .top_k = 2, .ffn_dim = 12, .dense_layers = 2, .every = 1}},
        {"qwen3", "qwen3_moe", {.count = 4, .top_k = 2, .ffn_dim = 12, .every = 2}},
        {"qwen3", NULL, {.count = 4, .top_k = 2, .ffn_dim = 12, .dense_layers = 1, .every = 2}},
        {"qwen3", "glm4_moe", {.count = 4, .top_k = 2, .shared = 1, .ffn_dim = 12, .every = 1}},
        {"llama",
         "glm4_moe",
         {.count = 4, .top_k = 2, .ffn_dim = 12, .dense_layers = 1, .every = 1}},
        {"llama",
         "glm4_moe",
         {.count = 4, .top_k = 2, .ffn_dim = 12, .every = 1, .unscaled = true}},
        {"llama",
         "glm4_moe",
         {.count = 4,
          .top_k = 2,
          .ffn_dim = 12,
          .every = 1,
          .sigmoid = true,
          .groups = 2,
          .top_groups = 1,
          .scale = 2.5f}},
        {"qwen2", NULL, {.count = 4, .top_k = 2, .ffn_dim = 12, .every = 1}},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        decoder_spec s = with_experts(rows[i].arch, rows[i].e), back;
        text t = {.a = a};
        assert_int_equal(model_spec_check(&s), ST_OK);
        assert_int_equal(model_is_planned_only(&s), rows[i].becomes == NULL);
        if (rows[i].becomes == NULL) {
            assert_string_equal(s.arch, rows[i].arch);
            assert_int_equal(model_spec_print_json(&s, &t), ST_UNSUPPORTED);
            error_clear();
            continue;
        }
        assert_string_equal(s.arch, rows[i].becomes);
        assert_int_equal(model_spec_print_json(&s, &t), ST_OK);
        assert_int_equal(read_text(t.bytes, &back), ST_OK);
        assert_string_equal(back.arch, s.arch);
        assert_int_equal(back.ffn_dim, s.ffn_dim);
        assert_int_equal(back.experts.count, s.experts.count);
        assert_int_equal(back.experts.top_k, s.experts.top_k);
        assert_int_equal(back.experts.ffn_dim, s.experts.ffn_dim);
        assert_int_equal(back.experts.dense_layers, s.experts.dense_layers);
        assert_int_equal(back.experts.every, s.experts.every);
        assert_int_equal(back.experts.unscaled, s.experts.unscaled);
        assert_int_equal(back.experts.sigmoid, s.experts.sigmoid);
        assert_int_equal(back.experts.shared, s.experts.shared);
        assert_int_equal(back.experts.groups, s.experts.groups);
        assert_int_equal(back.experts.top_groups, s.experts.top_groups);
        assert_true(back.experts.scale == s.experts.scale);
    }
}

#define DEEPSEEK(more)                                                                     \
    SHAPE("deepseek_v3", 2, 64, 4, 4, 100)                                                 \
    "\"intermediate_size\": 128, \"moe_intermediate_size\": 64, \"n_routed_experts\": 8, " \
    "\"num_experts_per_tok\": 2, \"first_k_dense_replace\": 1, \"kv_lora_rank\": 16, "     \
    "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 8, " more "}"

#define QWEN(type, more)                                                             \
    SHAPE(type, 4, 64, 4, 4, 100)                                                    \
    "\"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"num_experts\": 4, " \
    "\"shared_expert_intermediate_size\": 48, \"num_experts_per_tok\": 2, " more "}"

// Forms that published models do not have, but their software reads: any layers without experts,
// none with them, and biases. They are built as counted, and written so that they read back equal.
static void unusual_forms_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *config, *mixed; // layers with experts: x
        bool qkv_bias, out_bias;
    } rows[] = {
        {QWEN("qwen3_moe", "\"mlp_only_layers\": [1, 3]"), "x.x.", false, false},
        {QWEN("qwen3_moe", "\"mlp_only_layers\": [0]"), ".xxx", false, false},
        {QWEN("qwen3_moe", "\"mlp_only_layers\": [2, 0, 9]"), ".x.x", false, false},
        {QWEN("qwen3_moe", "\"mlp_only_layers\": [1], \"decoder_sparse_step\": 2"), "...x", false,
         false},
        {QWEN("qwen3_moe", "\"mlp_only_layers\": [0, 1, 2, 3]"), "....", false, false},
        {QWEN("qwen2_moe", "\"mlp_only_layers\": [1, 2]"), "x..x", true, false},
        {QWEN("qwen2_moe", "\"qkv_bias\": false"), "xxxx", false, false},
        {SHAPE(
             "deepseek_v2", 2, 64, 4, 4,
             100) "\"intermediate_size\": 128, \"moe_intermediate_size\": 64, \"n_routed_experts\": 8, "
                  "\"num_experts_per_tok\": 2, \"first_k_dense_replace\": 2, \"kv_lora_rank\": 16, "
                  "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 8}",
         "..", false, false},
        {DEEPSEEK("\"n_group\": 2, \"topk_group\": 1, \"attention_bias\": true"), ".x", true, true},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        decoder_spec s, back;
        model_counts counts;
        op_model *m = NULL;
        text t = {.a = a}, again = {.a = a};
        const model_options options = {
            .purpose = PURPOSE_TRAIN, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 8};
        assert_int_equal(read_text(rows[i].config, &s), ST_OK);
        assert_int_equal(model_spec_print_json(&s, &t), ST_OK);
        assert_int_equal(read_text(t.bytes, &back), ST_OK);
        assert_int_equal(model_spec_print_json(&back, &again), ST_OK);
        assert_string_equal(again.bytes, t.bytes);
        for (int64_t k = 0; k < s.layers; k++) {
            assert_int_equal(model_has_experts(&s, k), rows[i].mixed[k] == 'x');
            assert_int_equal(model_has_experts(&back, k), rows[i].mixed[k] == 'x');
        }
        assert_int_equal(back.qkv_bias, rows[i].qkv_bias);
        assert_int_equal(back.out_bias, rows[i].out_bias);
        model_count(&s, &counts);
        assert_int_equal(model_build(a, &s, &options, &m), ST_OK);
        assert_int_equal(m->parameters, counts.total);
        assert_int_equal(m->gemm_parameters, counts.gemm);
    }
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
        status st;
    } rows[] = {
        {SHAPE("mixtral", 2, 64, 4, 4, 100) "\"intermediate_size\": 128, "
                                            "\"num_experts_per_tok\": 2}",
         "num_local_experts", ST_MODEL},
        {SHAPE("mixtral", 2, 64, 4, 4, 100) "\"intermediate_size\": 128, "
                                            "\"num_local_experts\": 4, "
                                            "\"num_experts_per_tok\": 5}",
         "experts.top_k is 5", ST_MODEL},
        {SHAPE("qwen3_moe", 2, 64, 4, 4, 100) "\"intermediate_size\": 128, "
                                              "\"moe_intermediate_size\": 64, "
                                              "\"mlp_only_layers\": [-1], \"num_experts\": 4, "
                                              "\"num_experts_per_tok\": 2}",
         "mlp_only_layers", ST_MODEL},
        {SHAPE("qwen2_moe", 2, 64, 4, 4, 100) "\"intermediate_size\": 128, "
                                              "\"moe_intermediate_size\": 64, "
                                              "\"num_experts\": 4, \"num_experts_per_tok\": 2}",
         "shared_expert_intermediate_size", ST_MODEL},
        {DEEPSEEK("\"n_group\": 3, \"topk_group\": 1"), "in 3 groups", ST_MODEL},
        {DEEPSEEK("\"n_group\": 8, \"topk_group\": 1"), "in 8 groups", ST_MODEL},
        {DEEPSEEK("\"scoring_func\": \"softmax\""), "scoring_func", ST_MODEL},
        {DEEPSEEK("\"topk_method\": \"greedy\""), "topk_method", ST_MODEL},
        {DEEPSEEK("\"attention_bias\": 3"), "attention_bias", ST_MODEL},
        {DEEPSEEK("\"routed_scaling_factor\": -1"), "routed_scaling_factor", ST_MODEL},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        decoder_spec s;
        assert_int_equal(read_text(rows[i].config, &s), rows[i].st);
        assert_non_null(strstr(error_last()->text, rows[i].says));
        error_clear();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parameters_are_the_published_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(built_as_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(layers_alternate, setup, teardown),
        cmocka_unit_test_setup_teardown(forms_are_written, setup, teardown),
        cmocka_unit_test_setup_teardown(unusual_forms_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_named, setup, teardown),
    };
    return cmocka_run_group_tests_name("spec_hf_experts", tests, NULL, NULL);
}
