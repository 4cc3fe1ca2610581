// Specs: both spellings of config.json, printing, refused files and their messages; presets against
// published parameter counts; the model.* keys of a run.
#include "fixtures/base/test_paths.h"
#include "model/arch/arch.h"
#include "model/preset.h"
#include "model/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static arena *arena_make(void)
{
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    return a;
}

static status parse(arena *a, const char *source, decoder_spec *out)
{
    json *root = NULL;
    if (json_parse(source, (int64_t)strlen(source), "config.json", &root) != ST_OK) {
        fail_msg("%s: %s", source, error_last()->text);
    }
    const status st = model_spec_from_json(a, root, "config.json", out);
    json_free(root);
    return st;
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

// Compares everything but pointers by value, and windows and factors by their elements.
static void assert_equal(const decoder_spec *a, const decoder_spec *b)
{
    assert_string_equal(a->arch, b->arch);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->dim, b->dim);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->ffn_dim, b->ffn_dim);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->norm, b->norm);
    assert_true(a->norm_eps == b->norm_eps && a->init_std == b->init_std);
    assert_int_equal(a->mlp, b->mlp);
    assert_int_equal(a->activation, b->activation);
    assert_int_equal(a->position, b->position);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->out_bias, b->out_bias);
    assert_int_equal(a->mlp_bias, b->mlp_bias);
    assert_int_equal(a->norm_bias, b->norm_bias);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_memory_equal(&a->experts, &b->experts, sizeof(a->experts));
    assert_int_equal(a->bos_token, b->bos_token);
    assert_int_equal(a->pad_token, b->pad_token);
    assert_int_equal(a->norm_place, b->norm_place);
    assert_int_equal(a->norm_plus_one, b->norm_plus_one);
    assert_int_equal(a->qk_norm_whole, b->qk_norm_whole);
    assert_true(a->attention_cap == b->attention_cap && a->logit_cap == b->logit_cap);
    assert_true(a->attention_scalar == b->attention_scalar && a->embed_scale == b->embed_scale);
    assert_true(a->rope_local_theta == b->rope_local_theta && a->rotary_share == b->rotary_share);
    assert_true(a->idle_cap == b->idle_cap && a->qkv_clip == b->qkv_clip);
    assert_memory_equal(&a->latent, &b->latent, sizeof(a->latent));
    assert_int_equal(a->rope_interleaved, b->rope_interleaved);
    assert_memory_equal(&a->ends, &b->ends, sizeof(a->ends));
    assert_true(a->dropout_attention == b->dropout_attention);
    for (int64_t i = 0; i < a->layers; i++) {
        assert_int_equal(a->windows == NULL ? 0 : a->windows[i],
                         b->windows == NULL ? 0 : b->windows[i]);
    }
    const model_rope *p = &a->rope, *q = &b->rope;
    assert_int_equal(p->kind, q->kind);
    assert_int_equal(p->original_context, q->original_context);
    assert_int_equal(p->truncate, q->truncate);
    assert_true(same(p->theta, q->theta) && same(p->factor, q->factor));
    assert_true(same(p->low_freq_factor, q->low_freq_factor));
    assert_true(same(p->high_freq_factor, q->high_freq_factor));
    assert_true(same(p->beta_fast, q->beta_fast) && same(p->beta_slow, q->beta_slow));
    assert_true(same(p->attention_factor, q->attention_factor) && same(p->mscale, q->mscale));
    assert_true(same(p->mscale_all_dim, q->mscale_all_dim));
    for (int64_t i = 0; p->kind == MODEL_ROPE_LONGROPE && i < model_rope_dim(a) / 2; i++) {
        assert_true(p->short_factor[i] == q->short_factor[i]);
        assert_true(p->long_factor[i] == q->long_factor[i]);
    }
}

static void assert_prints_equal(arena *a, const decoder_spec *s)
{
    text t = {.a = a};
    decoder_spec back;
    if (model_spec_print_json(s, &t) != ST_OK) fail_msg("%s", error_last()->text);
    if (parse(a, t.bytes, &back) != ST_OK) fail_msg("%s\n%s", error_last()->text, t.bytes);
    assert_equal(s, &back);
}

static void case_load(const char *folder, const char *name)
{
    char path[1100];
    arena *a = arena_make();
    decoder_spec newer, older;
    json *root = NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const status st = model_spec_from_hf(host_real(), a, path, &newer);
    // The reference data also has models that are unknown here, and some that can only be planned.
    const bool is_known = st == ST_OK || strstr(error_last()->text, "unknown model type") == NULL;
    if (!is_known || (st == ST_OK && model_is_planned_only(&newer))) {
        error_clear();
        arena_destroy(a);
        return;
    }
    if (st != ST_OK) fail_msg("%s", error_last()->text);
    snprintf(path, sizeof(path), "%s/%s/config.older.json", folder, name);
    assert_int_equal(json_read(host_real(), path, 1 << 20, &root), ST_OK);
    if (model_spec_from_json(a, root, path, &older) != ST_OK) fail_msg("%s", error_last()->text);
    json_free(root);
    assert_equal(&newer, &older);
    assert_prints_equal(a, &newer);
    arena_destroy(a);
}

static void both_spellings(void **state)
{
    (void)state;
    char folder[1024];
    arena *a = arena_make();
    file_names cases;
    test_shared("golden/models", folder);
    if (host_real()->api->path_list(host_real(), a, folder, &cases) != ST_OK) {
        printf("skipped, no reference data: %s\n", error_last()->text);
        arena_destroy(a);
        skip();
    }
    assert_true(cases.count > 0);
    for (int64_t i = 0; i < cases.count; i++) case_load(folder, cases.names[i]);
    arena_destroy(a);
}

// A complete config of each kind; each row below changes one key.
#define LLAMA(more)                                                                           \
    "{\"model_type\": \"llama\", \"vocab_size\": 257, \"num_hidden_layers\": 4,"              \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96," \
    "\"hidden_size\": 48" more "}"
#define QWEN2(more)                                                                           \
    "{\"model_type\": \"qwen2\", \"vocab_size\": 257, \"num_hidden_layers\": 4,"              \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96," \
    "\"num_key_value_heads\": 2, \"hidden_size\": 48" more "}"
#define MISTRAL(more)                                                                         \
    "{\"model_type\": \"mistral\", \"vocab_size\": 257, \"num_hidden_layers\": 4,"            \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 8, \"intermediate_size\": 96," \
    "\"hidden_size\": 64" more "}"
#define PHI3(more)                                                                            \
    "{\"model_type\": \"phi3\", \"vocab_size\": 257, \"num_hidden_layers\": 2,"               \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96," \
    "\"hidden_size\": 64, \"pad_token_id\": null" more "}"
#define OLMOE(more)                                                                           \
    "{\"model_type\": \"olmoe\", \"vocab_size\": 257, \"num_hidden_layers\": 2,"              \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 24," \
    "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"hidden_size\": 48" more "}"
#define GEMMA3(more)                                                                          \
    "{\"model_type\": \"gemma3_text\", \"vocab_size\": 257, \"num_hidden_layers\": 2,"        \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96," \
    "\"head_dim\": 12, \"hidden_size\": 48" more "}"
#define GLM4(more)                                                                                \
    "{\"model_type\": \"glm4_moe\", \"vocab_size\": 257, \"num_hidden_layers\": 2,"               \
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"intermediate_size\": 96,"     \
    "\"head_dim\": 16, \"hidden_size\": 48, \"num_key_value_heads\": 4, \"n_routed_experts\": 4," \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, \"n_shared_experts\": 1" more "}"
#define GPT2(more)                                                                         \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 257, \"n_layer\": 4, \"n_positions\": 64," \
    "\"n_head\": 4, \"n_embd\": 48" more "}"

static decoder_spec read_one(arena *a, const char *source)
{
    decoder_spec s;
    if (parse(a, source, &s) != ST_OK) fail_msg("%s: %s", source, error_last()->text);
    assert_prints_equal(a, &s);
    return s;
}

static void silence_is_the_default(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s = read_one(a, LLAMA(""));
    assert_int_equal(s.kv_heads, 4);
    assert_int_equal(s.head_dim, 12);
    assert_true(s.norm_eps == 1e-6f && s.init_std == 0.02f && s.rope.theta == 10000.0);
    assert_false(s.tied || s.qkv_bias || s.mlp_bias || s.qk_norm);
    assert_int_equal(s.bos_token, 1);
    assert_null(s.windows);
    s = read_one(a, LLAMA(", \"num_key_value_heads\": null, \"head_dim\": null,"
                          "\"rope_scaling\": null, \"rope_parameters\": null"));
    assert_int_equal(s.kv_heads, 4);
    s = read_one(a, MISTRAL(""));
    assert_int_equal(s.kv_heads, 8);
    assert_int_equal(s.windows[3], 4096);
    s = read_one(a, MISTRAL(", \"sliding_window\": null, \"num_key_value_heads\": null"));
    assert_null(s.windows);
    s = read_one(a, GPT2(""));
    assert_true(s.tied && s.qkv_bias && s.out_bias && s.mlp_bias && s.norm_bias);
    assert_int_equal(s.ffn_dim, 192);
    assert_int_equal(s.activation, ACT_GELU_TANH);
    assert_int_equal(s.ends.count, 0); // 50256 is not in this vocabulary
    assert_true(s.dropout_residual == 0.1f && s.dropout_embedding == 0.1f);
    s = read_one(a, GPT2(", \"n_inner\": 100, \"activation_function\": \"gelu\","
                         "\"tie_word_embeddings\": false, \"scale_attn_weights\": true"));
    assert_int_equal(s.ffn_dim, 100);
    assert_int_equal(s.activation, ACT_GELU_ERF);
    assert_false(s.tied);
    // Without a type, the class name decides.
    s = read_one(a,
                 "{\"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 257,"
                 "\"num_hidden_layers\": 1, \"max_position_embeddings\": 64,"
                 "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"hidden_size\": 48,"
                 "\"num_key_value_heads\": 4, \"eos_token_id\": [7, 8], \"attention_bias\": true}");
    assert_int_equal(s.head_dim, 128);
    assert_true(s.qk_norm && s.qkv_bias && s.out_bias);
    assert_int_equal(s.ends.count, 2);
    assert_int_equal(s.ends.ids[0], 7);
    assert_int_equal(s.ends.ids[1], 8);
    arena_destroy(a);
}

static void windows_by_layer(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        int32_t windows[4];
    } rows[] = {
        {QWEN2(", \"sliding_window\": 16"), {0, 0, 0, 0}},
        {QWEN2(", \"use_sliding_window\": true, \"sliding_window\": 16"), {0, 0, 0, 0}},
        {QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 2"), {0, 0, 4096, 4096}},
        {QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 3, \"sliding_window\": 9"),
         {0, 0, 0, 9}},
        {QWEN2(", \"use_sliding_window\": true, \"max_window_layers\": 0, \"sliding_window\": 9,"
               "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\","
               "\"full_attention\"]"),
         {9, 0, 9, 0}},
        {MISTRAL(", \"sliding_window\": 5"), {5, 5, 5, 5}},
    };
    arena *a = arena_make();
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const decoder_spec s = read_one(a, rows[i].source);
        for (int64_t k = 0; k < 4; k++) {
            assert_int_equal(s.windows == NULL ? 0 : s.windows[k], rows[i].windows[k]);
        }
    }
    arena_destroy(a);
}

static void rope_options(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s = read_one(
        a,
        LLAMA(", \"rope_theta\": 500000, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}"));
    assert_int_equal(s.rope.kind, MODEL_ROPE_LINEAR);
    assert_true(s.rope.theta == 500000.0 && s.rope.factor == 2.0);
    s = read_one(a, LLAMA(", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.5,"
                          "\"rope_theta\": 1e6, \"beta_fast\": 3, \"truncate\": false,"
                          "\"mscale\": 0.7, \"original_max_position_embeddings\": 16}"));
    assert_true(!s.rope.truncate && s.rope.beta_fast == 3.0 && s.rope.mscale == 0.7);
    assert_int_equal(s.rope.original_context, 16);
    s = read_one(a, LLAMA(", \"original_max_position_embeddings\": 32, \"rope_scaling\": {"
                          "\"type\": \"su\", \"short_factor\": [1, 1, 1, 1, 1, 1.25],"
                          "\"long_factor\": [1, 2, 3, 4, 5, 6]}"));
    assert_int_equal(s.rope.kind, MODEL_ROPE_LONGROPE);
    assert_int_equal(s.rope.original_context, 32);
    s = read_one(a, LLAMA(", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}"));
    assert_int_equal(s.rope.kind, MODEL_ROPE_DYNAMIC);
    arena_destroy(a);
}

// Positions turn the first columns of each head; the share has two places in a file.
static void parts_of_heads(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s = read_one(a, PHI3(""));
    assert_int_equal(model_rope_dim(&s), 16);
    s = read_one(a, PHI3(", \"partial_rotary_factor\": 0.75, \"rope_scaling\": {"
                         "\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1, 1, 2],"
                         "\"long_factor\": [1, 2, 3, 4, 5, 6]}"));
    assert_int_equal(model_rope_dim(&s), 12);
    s = read_one(a, PHI3(", \"rope_parameters\": {\"rope_type\": \"default\","
                         "\"partial_rotary_factor\": 0.3}")); // 4.8 of 16
    assert_int_equal(model_rope_dim(&s), 4);
    s = read_one(a, GLM4(""));
    assert_int_equal(model_rope_dim(&s), 8);
    s = read_one(a, GLM4(", \"partial_rotary_factor\": 1.0"));
    assert_int_equal(model_rope_dim(&s), 16);
    arena_destroy(a);
}

static void bounds_of_numbers(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s = read_one(a, OLMOE(", \"clip_qkv\": 0.1"));
    assert_true(s.qkv_clip == 0.1f);
    s = read_one(a, OLMOE(", \"clip_qkv\": null"));
    assert_true(s.qkv_clip == 0.0f);
    s = read_one(a, GEMMA3(", \"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30"));
    assert_true(s.idle_cap == 50.0f && s.attention_cap == 0.0f && s.logit_cap == 30.0f);
    arena_destroy(a);
}

// ---- what is refused ----------------------------------------------------------------------------

static const struct {
    const char *source, *says;
} hostile[] = {
    {"[]", "expected a map"},
    {"{}", "\"model_type\": expected a string"},
    {"{\"model_type\": 7}", "found 7"},
    {"{\"model_type\": \"lama\"}", "did you mean \"llama\""},
    {"{\"model_type\": \"bert\"}",
     "known: deepseek_v2, deepseek_v3, gemma2, gemma3_text, glm4_moe, gpt2, gpt_oss, llama, mistral, mixtral, "
     "olmo2"},
    {"{\"model_type\": \"\\u001b[2J\"}", "\"?[2J\""},
    {"{\"model_type\": \"llama\"}", "\"vocab_size\": expected a whole number from 1 to"},
    {LLAMA(", \"architectures\": [\"LlamaForTokenClassification\"]"),
     "expected \"LlamaForCausalLM\""},
    {LLAMA(", \"architectures\": [\"LlamaForSequenceClassification\"]"), "with 2 labels"},
    {LLAMA(", \"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 3"),
     "with 3 labels"},
    {LLAMA(", \"architectures\": {}"), "expected a list of strings, found a map"},
    {LLAMA(", \"num_key_value_heads\": 3"), "nearest that do: 2 and 4"},
    {LLAMA(", \"num_key_value_heads\": \"2\""), "found \"2\""},
    {LLAMA(", \"num_key_value_heads\": 0"), "from 1 to 65536, found 0"},
    {LLAMA(", \"num_key_value_heads\": 1.5"), "found 1.5"},
    {LLAMA(", \"head_dim\": 257"), "from 1 to 256, found 257"},
    {LLAMA(", \"head_dim\": 7"), "must be even"},
    {LLAMA(", \"hidden_act\": \"relu\""), "gated activations that are"},
    {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\"}}",
     "\"text_config\" (model type \"gemma3_text\")"},
    {LLAMA(", \"hidden_act\": \"mish\""), "no such activation \"mish\"; known: gelu_new"},
    {LLAMA(", \"hidden_act\": 3"), "\"hidden_act\": expected a string, found 3"},
    {LLAMA(", \"mlp_bias\": 1"), "\"mlp_bias\": expected true or false, found 1"},
    {LLAMA(", \"attention_bias\": \"yes\""), "\"attention_bias\""},
    {LLAMA(", \"rms_norm_eps\": -1"), "a number from 0 to 1, found -1"},
    {LLAMA(", \"rms_norm_eps\": \"1e-5\""), "\"rms_norm_eps\": expected a number"},
    {LLAMA(", \"attention_dropout\": 1"), "\"attention_dropout\""},
    {LLAMA(", \"bos_token_id\": {}"), "\"bos_token_id\""},
    {LLAMA(", \"eos_token_id\": []"), "\"eos_token_id\""},
    {LLAMA(", \"eos_token_id\": [1, null]"), "\"eos_token_id\""},
    {LLAMA(", \"eos_token_id\": [0,1,2,3,4,5,6,7,8]"), "\"eos_token_id\""},
    {LLAMA(", \"quantization_config\": {}"), "expected null, the only value"},
    {LLAMA(", \"partial_rotary_factor\": 0.5"), "expected 1, the only value"},
    {LLAMA(", \"rope_theta\": 0"), "\"rope_theta\": expected a number from 1"},
    {LLAMA(", \"rope_theta\": 1"), "expected more than 1"},
    {LLAMA(", \"rope_scaling\": []"), "\"rope_scaling\": expected a map or null"},
    {LLAMA(", \"rope_scaling\": {\"factor\": 2}"), "\"rope_type\": expected a string"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"yarm\"}"), "did you mean yarn"},
    {LLAMA(", \"rope_scaling\": {\"type\": null}"), "\"type\": expected a string, found null"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"linear\"}"), "need factor"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}"), "need factor"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}"), "found \"2\""},
    {LLAMA(", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}"), "low_freq_factor"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4,"
           "\"high_freq_factor\": 4}"),
     "must be above"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"longrope\"}"), "a list of 6 numbers"},
    {LLAMA(", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 0, 1, 1]}"),
     "numbers above 0"},
    {LLAMA(", \"rope_parameters\": {\"full_attention\": {}}"), "one set of options"},
    {LLAMA(", \"rope_parameters\": {\"partial_rotary_factor\": 0.25}"), "expected 1"},
    {PHI3(", \"partial_rotary_factor\": 0"), "positions turn 0 of 16 columns of a head"},
    {PHI3(", \"partial_rotary_factor\": 0.35"), "positions turn 5 of 16 columns"},
    {GLM4(", \"partial_rotary_factor\": 1.5"), "expected a number from 0 to 1"},
    {GLM4(", \"partial_rotary_factor\": \"half\""), "\"partial_rotary_factor\""},
    {OLMOE(", \"clip_qkv\": 0"), "a number above 0, or null"},
    {OLMOE(", \"clip_qkv\": \"8\""), "\"clip_qkv\""},
    {LLAMA(", \"clip_qkv\": 8"), "expected null, the only value"},
    {GEMMA3(", \"attn_logit_softcapping\": -1"), "\"attn_logit_softcapping\""},
    {LLAMA(", \"layer_types\": [\"sliding_attention\", \"full_attention\","
           "\"full_attention\", \"full_attention\"]"),
     "layer 0 has sliding_attention"},
    {MISTRAL(", \"sliding_window\": 0"), "\"sliding_window\": expected"},
    {MISTRAL(", \"sliding_window\": 8, \"layer_types\": [\"sliding_attention\","
             "\"full_attention\", \"full_attention\", \"full_attention\"]"),
     "layer 1 has full_attention"},
    {QWEN2(", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\","
           "\"full_attention\"]"),
     "\"use_sliding_window\""},
    {QWEN2(", \"layer_types\": [\"full_attention\"]"), "a list of 4 strings, found a list of 1"},
    {QWEN2(", \"layer_types\": [\"chunked_attention\", 1, 2, 3]"), "found \"chunked_attention\""},
    {QWEN2(", \"use_sliding_window\": 1"), "true or false"},
    {QWEN2(", \"max_window_layers\": -1"), "\"max_window_layers\""},
    {GPT2(", \"n_inner\": \"x\""), "\"n_inner\""},
    {GPT2(", \"scale_attn_weights\": false"), "\"scale_attn_weights\": expected true"},
    {GPT2(", \"scale_attn_by_inverse_layer_idx\": true"), "expected false"},
    {GPT2(", \"add_cross_attention\": true"), "expected false"},
    {GPT2(", \"resid_pdrop\": 2"), "\"resid_pdrop\""},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 257, \"n_layer\": 4, \"n_positions\": 64,"
     "\"n_head\": 5, \"n_embd\": 48}",
     "\"n_embd\" = 48 is not a multiple of \"n_head\" = 5"},
    {"{\"model_type\": \"llama\", \"vocab_size\": 99999999999999999999}", "\"vocab_size\""},
    {"{\"model_type\": \"llama\", \"vocab_size\": 1, \"num_hidden_layers\": 1000000000}",
     "\"num_hidden_layers\": expected a whole number from 1 to 10000, found 1000000000"},
};

static void hostile_files(void **state)
{
    (void)state;
    arena *a = arena_make();
    for (int64_t i = 0; i < COUNT_OF(hostile); i++) {
        decoder_spec s;
        if (parse(a, hostile[i].source, &s) == ST_OK) fail_msg("%s: accepted", hostile[i].source);
        assert_int_equal(error_last()->code, ST_MODEL);
        if (strstr(error_last()->text, hostile[i].says) == NULL) {
            fail_msg("%s:\n%s\nwithout: %s", hostile[i].source, error_last()->text,
                     hostile[i].says);
        }
        assert_non_null(strstr(error_last()->text, "config.json"));
    }
    arena_destroy(a);
}

static void specs_out_of_their_architecture(void **state)
{
    (void)state;
    arena *a = arena_make();
    const decoder_spec good = read_one(a, LLAMA(""));
    decoder_spec s = good;
    static const int32_t windows[] = {0, 0, 8, 0}, mixed[] = {4, 8, 0, 0};
    s.windows = windows;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "mistral, qwen2 and qwen3"));
    s.arch = "mistral";
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s.arch = "qwen2";
    s.qkv_bias = true;
    assert_int_equal(model_spec_check(&s), ST_OK);
    s.windows = mixed;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.qk_norm = true;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.norm = MODEL_LAYERNORM;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.qkv_bias = true; // but none on the output
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.norm_eps = (float)NAN;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.vocab = 0;
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    s = good;
    s.arch = "gpt3";
    assert_int_equal(model_spec_check(&s), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "did you mean \"gpt2\""));
    arena_destroy(a);
}

// ---- presets ------------------------------------------------------------------------------------

// Counts the parameters of the built model, and checks that counting without building agrees.
static int64_t parameters_of(arena *a, const decoder_spec *s)
{
    op_model *m = NULL;
    model_counts counts;
    const model_options options = {.purpose = PURPOSE_TRAIN,
                                   .compute = DTYPE_BF16,
                                   .grad = DTYPE_F32,
                                   .seq = 64,
                                   .sizes_only = true};
    if (model_build(a, s, &options, &m) != ST_OK) fail_msg("%s", error_last()->text);
    model_count(s, &counts);
    assert_int_equal(counts.total, m->parameters);
    if (s->experts.count == 0) assert_int_equal(counts.active, m->parameters);
    assert_int_equal(counts.gemm, m->gemm_parameters);
    return m->parameters;
}

// Published figures have three digits at most; two of the presets stand for models whose positions
// or biases differ slightly.
static void assert_near_published(const char *name, const decoder_spec *s, double published)
{
    model_counts counts;
    model_count(s, &counts);
    const double total = (double)counts.total / 1e9;
    if (total < 0.975 * published || total > 1.025 * published) {
        fail_msg("%s has %.4g billion parameters, published are %.4g", name, total, published);
    }
}

static void assert_cannot_be_built(arena *a, const decoder_spec *s)
{
    op_model *m = NULL;
    const model_options options = {
        .purpose = PURPOSE_TRAIN, .compute = DTYPE_BF16, .grad = DTYPE_F32, .seq = 64};
    assert_int_equal(model_build(a, s, &options, &m), ST_UNSUPPORTED);
    assert_non_null(strstr(error_last()->text, "cannot be trained yet"));
}

static void presets_have_published_sizes(void **state)
{
    (void)state;
    int64_t count = 0;
    for (const model_preset_file *f = model_preset_files; f->name != NULL; f++, count++) {
        arena *a = arena_make();
        decoder_spec s, again;
        model_preset_facts facts;
        const int64_t bytes = (int64_t)strlen(f->yaml);
        if (model_preset_parse(a, f->yaml, bytes, f->name, &s, &facts) != ST_OK) {
            fail_msg("%s", error_last()->text);
        }
        assert_non_null(facts.about);
        assert_true(facts.parameters > 0 || facts.published > 0.0 || facts.assumed.count > 0);
        if (facts.published > 0.0) assert_near_published(f->name, &s, facts.published);
        model_experts_arch(&s);
        if (model_is_planned_only(&s)) {
            assert_cannot_be_built(a, &s);
            arena_destroy(a);
            continue;
        }
        const int64_t parameters = parameters_of(a, &s);
        if (facts.parameters > 0 && parameters != facts.parameters) {
            fail_msg("%s has %lld parameters, published are %lld", f->name, (long long)parameters,
                     (long long)facts.parameters);
        }
        assert_prints_equal(a, &s);
        assert_int_equal(model_spec_preset(host_real(), a, f->name, &again), ST_OK);
        assert_equal(&s, &again);
        arena_destroy(a);
    }
    assert_true(count >= 20);
}

static void presets_by_name_and_path(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s;
    assert_int_equal(model_spec_preset(host_real(), a, "catalog/models/tiny.yaml", &s), ST_OK);
    assert_int_equal(s.vocab, 257);
    assert_int_equal(model_spec_preset(host_real(), a, "gpt2-124", &s), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "did you mean gpt2-124m"));
    assert_null(strstr(error_last()->text, "llama3.1-405b")); // the nearest, not all
    assert_string_equal(model_preset_named("gpt2")->name, "gpt2-124m");
    assert_string_equal(model_preset_named("GPT2-XL")->name, "gpt2-1.5b");
    assert_string_equal(model_preset_named("Llama-3.1-8B")->name, "llama3.1-8b");
    assert_null(model_preset_named("gpt9"));
    assert_int_equal(model_spec_preset(host_real(), a, "./none.yaml", &s), ST_NOT_FOUND);
    static const struct {
        const char *yaml, *says;
    } rows[] = {
        {"layers: 1\ndim: 4\nheads: 1\nffn_dim: 4\nvocab: 4\ncontext: 4\narch: lama\n",
         "did you mean \"llama\""},
        {"layers: 1\ndim: 4\nheads: 1\nffn_dim: 4\nvocab: 4\ncontext: 4\n", "\"arch\""},
        {"arch: llama\nlayers: 3\n", "dim"},
        {"arch: llama\nlayer: 3\n", "layers"},
        {"arch: llama\nlayers: 1\ndim: 4\nheads: 3\nkv_heads: 2\nhead_dim: 4\nffn_dim: 4\n"
         "vocab: 4\ncontext: 4\n",
         "does not divide"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        model_preset_facts facts;
        const int64_t bytes = (int64_t)strlen(rows[i].yaml);
        assert_true(model_preset_parse(a, rows[i].yaml, bytes, "bad", &s, &facts) != ST_OK);
        if (strstr(error_last()->text, rows[i].says) == NULL) fail_msg("%s", error_last()->text);
    }
    arena_destroy(a);
}

// ---- a run's keys -------------------------------------------------------------------------------

static status from_run(arena *a, const char *const *keys, decoder_spec *out)
{
    run_config r;
    config *c = NULL;
    int64_t count = 0;
    while (keys[count] != NULL) count++;
    memset(&r, 0, sizeof(r));
    TRY(config_parse(a, &run_config_table,
                     &(const config_input){.yaml = "",
                                           .bytes = 0,
                                           .name = "run.yaml",
                                           .folder = ".",
                                           .overrides = keys,
                                           .override_count = count},
                     &r, &c));
    return model_spec_from_config(host_real(), a, &r, out);
}

static void keys_over_presets(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s;
    assert_int_equal(from_run(a, (const char *[]){"model.preset=tiny", NULL}, &s), ST_OK);
    assert_int_equal(s.dim, 128);
    assert_int_equal(s.vocab, 257);
    const char *const wider[] = {"model.preset=tiny", "model.dim=192",     "model.heads=6",
                                 "model.vocab=300",   "model.dropout=0.1", NULL};
    assert_int_equal(from_run(a, wider, &s), ST_OK);
    assert_int_equal(s.head_dim, 32);
    assert_int_equal(s.kv_heads, 6);
    assert_int_equal(s.ffn_dim, 384); // the preset's
    assert_true(s.dropout_attention == 0.1f && s.dropout_embedding == 0.1f);
    const char *const own_heads[] = {"model.preset=qwen3-0.6b", "model.layers=2", NULL};
    assert_int_equal(from_run(a, own_heads, &s), ST_OK);
    assert_int_equal(s.head_dim, 128);
    assert_int_equal(s.kv_heads, 8);
    const char *const slides[] = {"model.preset=tiny", "model.window=32", NULL};
    assert_int_equal(from_run(a, slides, &s), ST_OK);
    assert_string_equal(s.arch, "mistral");
    assert_int_equal(s.windows[5], 32);
    const char *const layers[] = {"model.preset=mistral-7b", "model.layers=40", NULL};
    assert_int_equal(from_run(a, layers, &s), ST_OK);
    assert_int_equal(s.windows[39], 4096);
    const char *const learned[] = {"model.preset=gpt2-tiny", "model.window=32", NULL};
    assert_int_equal(from_run(a, learned, &s), ST_MODEL);
    const char *const odd[] = {"model.preset=tiny", "model.kv_heads=3", NULL};
    assert_int_equal(from_run(a, odd, &s), ST_MODEL);
    assert_non_null(strstr(error_last()->text, "nearest that do: 2 and 4"));
    arena_destroy(a);
}

static void keys_alone(void **state)
{
    (void)state;
    arena *a = arena_make();
    decoder_spec s;
    const char *const sizes[] = {"model.layers=2", "model.dim=64", "model.heads=4", "train.seq=96",
                                 NULL};
    if (from_run(a, sizes, &s) != ST_OK) fail_msg("%s", error_last()->text);
    assert_string_equal(s.arch, "llama");
    assert_int_equal(s.vocab, 0); // set by the tokenizer
    assert_int_equal(s.context, 96);
    assert_int_equal(s.head_dim, 16);
    assert_int_equal(s.ffn_dim, 192); // 8/3 of 64, rounded up
    const char *const gpt2[] = {"model.arch=gpt2", "model.layers=2", "model.dim=64",
                                "model.heads=4",   "model.vocab=99", NULL};
    assert_int_equal(from_run(a, gpt2, &s), ST_OK);
    assert_true(s.tied && s.qkv_bias && s.position == MODEL_POSITION_LEARNED);
    assert_int_equal(s.ffn_dim, 256);
    const char *const biased[] = {
        "model.layers=2",           "model.dim=64",        "model.heads=4",
        "model.attention_bias=yes", "model.mlp_bias=yes",  "model.tied=yes",
        "model.rope_theta=5e5",     "model.norm_eps=1e-6", NULL};
    assert_int_equal(from_run(a, biased, &s), ST_OK);
    assert_true(s.qkv_bias && s.out_bias && s.mlp_bias && s.tied && s.rope.theta == 5e5);
    const char *const uneven[] = {"model.layers=2", "model.dim=65", "model.heads=4", NULL};
    assert_int_equal(from_run(a, uneven, &s), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "64 and 68"));
    const char *const normed[] = {"model.layers=2", "model.dim=64", "model.heads=4",
                                  "model.qk_norm=yes", NULL};
    assert_int_equal(from_run(a, normed, &s), ST_MODEL);
    const char *const qwen[] = {"model.arch=qwen3", "model.layers=2",    "model.dim=64",
                                "model.heads=4",    "model.head_dim=32", NULL};
    assert_int_equal(from_run(a, qwen, &s), ST_OK);
    assert_true(s.qk_norm && s.head_dim == 32);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings),
        cmocka_unit_test(silence_is_the_default),
        cmocka_unit_test(windows_by_layer),
        cmocka_unit_test(rope_options),
        cmocka_unit_test(parts_of_heads),
        cmocka_unit_test(bounds_of_numbers),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(specs_out_of_their_architecture),
        cmocka_unit_test(presets_have_published_sizes),
        cmocka_unit_test(presets_by_name_and_path),
        cmocka_unit_test(keys_over_presets),
        cmocka_unit_test(keys_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
