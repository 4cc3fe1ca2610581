// CUDA kernels in the emulator with every access to shared memory checked: over all samples, no two
// threads use the same bytes, one of them writing, without a barrier between. Then mistakes are
// planted into kernels (cuda_emulator.h): each of them is reported, or changes a result.
#include "fixtures/kernels/sample_values.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

// Returns whether the backend has the call.
static bool variant_run(backend_run *cuda, op_code code, int variant, bool strict)
{
    arena *a;
    sample s;
    must(arena_create("races", 0, &a));
    sample_open(a, code, variant, &s);
    sample_memory *m = sample_memory_create(a, &s, 0);
    sample_fill(m, 1, true);
    const status st = sample_is_big(&s) ? ST_UNSUPPORTED : sample_run(m, cuda, true, strict);
    if (st != ST_OK && st != ST_UNSUPPORTED) {
        fail_msg("%s, variant %d: %s", s.kind->name, variant, error_last()->text);
    }
    arena_destroy(a);
    return st == ST_OK;
}

static void test_samples(void **state)
{
    (void)state;
#ifndef TRIREME_RACES
    skip(); // this compiler tells nothing about accesses
#endif
    backend_run cuda;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    int64_t calls = 0;
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (kern_backend_cuda.run[code] == NULL) continue;
        // Every second variant: they differ in types and in which operands are missing.
        for (int v = code % 2; v < op_sample_count((op_code)code); v += 2) {
            calls += variant_run(&cuda, (op_code)code, v, false);
        }
        // Sums over rows have kernels of their own in strict order.
        for (int v = 1; v < 8 && op_kind_of((op_code)code)->accumulates != 0; v += 3) {
            if (v < op_sample_count((op_code)code)) {
                calls += variant_run(&cuda, (op_code)code, v, true);
            }
        }
    }
    cuda_emulator_sm90(&cuda.emulator); // where attention has kernels of its own
    for (int v = 1; v < op_sample_count(OP_ATTENTION); v += 16) {
        calls += variant_run(&cuda, OP_ATTENTION, v, false);
    }
    for (int v = 1; v < op_sample_count(OP_ATTENTION_BWD); v += 16) {
        calls += variant_run(&cuda, OP_ATTENTION_BWD, v, false);
    }
    assert_true(cuda.emulator.wgmma_launches > 0);
    print_message("%lld calls, %lld accesses to memory\n", (long long)calls,
                  (long long)cuda.emulator.accesses);
    assert_true(cuda.emulator.accesses > 1000000);
    backend_runs_deinit(&cuda, 1);
}

// ---- planted mistakes ---------------------------------------------------------------------------
typedef struct plant {
    const char *kernel;
    op_code code;
    int variant; // the sample that runs it
    cuda_mistake mistake;
    int at;
} plant;

#define PRODUCT   "cuda_gemm_bf16_nt", OP_MATMUL, 5
#define ALIGNED   "cuda_gemm_bf16_nt", OP_MATMUL, 1 // rows begin at multiples of 16 bytes
#define TRANSPOSE "cuda_gemm_bf16_tn", OP_MATMUL_DW, 5
#define ATTENTION "cuda_attention_bf16_64", OP_ATTENTION, 5
#define QUERIES   "cuda_attention_dq_bf16_64", OP_ATTENTION_BWD, 5
#define KEYS      "cuda_attention_dkv_bf16_64", OP_ATTENTION_BWD, 5
#define PLAIN     "cuda_attention_plain", OP_ATTENTION, 4
#define PARTS     "cuda_attention_parts", OP_ATTENTION, 88
#define PLAIN_DQ  "cuda_attention_dq_plain", OP_ATTENTION_BWD, 4
#define PLAIN_DKV "cuda_attention_dkv_plain", OP_ATTENTION_BWD, 4

static const plant plants[] = {
    {PRODUCT, CUDA_MISTAKE_BARRIER, 0},
    {PRODUCT, CUDA_MISTAKE_BARRIER, 1},
    {TRANSPOSE, CUDA_MISTAKE_BARRIER, 2},
    {PRODUCT, CUDA_MISTAKE_DIVERGENCE, 0},
    {PRODUCT, CUDA_MISTAKE_DIVERGENCE, 2},
    {PRODUCT, CUDA_MISTAKE_WARP_BARRIER, 0},
    {PRODUCT, CUDA_MISTAKE_LOAD, 0},
    {PRODUCT, CUDA_MISTAKE_LOAD, 5},
    {PRODUCT, CUDA_MISTAKE_FRAGMENT, 0},
    {PRODUCT, CUDA_MISTAKE_FRAGMENT, 20},
    {ALIGNED, CUDA_MISTAKE_WAIT, 0},
    {ALIGNED, CUDA_MISTAKE_COMMIT, 0},
    {ALIGNED, CUDA_MISTAKE_COPY, 0},
    {ALIGNED, CUDA_MISTAKE_ADDRESS, 0},
    {ALIGNED, CUDA_MISTAKE_BARRIER, 0},
    {TRANSPOSE, CUDA_MISTAKE_BARRIER, 0},
    {TRANSPOSE, CUDA_MISTAKE_DIVERGENCE, 0},
    {TRANSPOSE, CUDA_MISTAKE_LOAD, 0},
    {TRANSPOSE, CUDA_MISTAKE_FRAGMENT, 3},
    {TRANSPOSE, CUDA_MISTAKE_WARP_BARRIER, 0},
    {ATTENTION, CUDA_MISTAKE_BARRIER, 0},
    {ATTENTION, CUDA_MISTAKE_DIVERGENCE, 0},
    {ATTENTION, CUDA_MISTAKE_WAIT, 0},
    {ATTENTION, CUDA_MISTAKE_COMMIT, 0},
    {ATTENTION, CUDA_MISTAKE_COPY, 0},
    {ATTENTION, CUDA_MISTAKE_ADDRESS, 0},
    {ATTENTION, CUDA_MISTAKE_LOAD, 0},
    {ATTENTION, CUDA_MISTAKE_LOAD, 4},
    {ATTENTION, CUDA_MISTAKE_FRAGMENT, 0},
    {ATTENTION, CUDA_MISTAKE_SHUFFLE, 2},
    {ATTENTION, CUDA_MISTAKE_LANE, 1},
    {ATTENTION, CUDA_MISTAKE_WARP_BARRIER, 0},
    {QUERIES, CUDA_MISTAKE_BARRIER, 0},
    {QUERIES, CUDA_MISTAKE_WAIT, 0},
    {QUERIES, CUDA_MISTAKE_COMMIT, 0},
    {QUERIES, CUDA_MISTAKE_COPY, 0},
    {QUERIES, CUDA_MISTAKE_ADDRESS, 0},
    {QUERIES, CUDA_MISTAKE_LOAD, 0},
    {QUERIES, CUDA_MISTAKE_FRAGMENT, 0},
    {QUERIES, CUDA_MISTAKE_WARP_BARRIER, 0},
    {KEYS, CUDA_MISTAKE_BARRIER, 0},
    {KEYS, CUDA_MISTAKE_WAIT, 0},
    {KEYS, CUDA_MISTAKE_COMMIT, 0},
    {KEYS, CUDA_MISTAKE_COPY, 0},
    {KEYS, CUDA_MISTAKE_LOAD, 0},
    {KEYS, CUDA_MISTAKE_FRAGMENT, 0},
    {KEYS, CUDA_MISTAKE_DIVERGENCE, 0},
    {KEYS, CUDA_MISTAKE_WARP_BARRIER, 0},
    {PLAIN, CUDA_MISTAKE_BARRIER, 0},
    {PLAIN, CUDA_MISTAKE_BARRIER, 1},
    {PLAIN, CUDA_MISTAKE_WARP_BARRIER, 0},
    {PLAIN, CUDA_MISTAKE_SHUFFLE, 1},
    {PLAIN, CUDA_MISTAKE_LANE, 2},
    {PLAIN, CUDA_MISTAKE_SHARED, 0},
    {PARTS, CUDA_MISTAKE_BARRIER, 0},
    {PARTS, CUDA_MISTAKE_BARRIER, 1},
    {PARTS, CUDA_MISTAKE_BARRIER, 2},
    {PARTS, CUDA_MISTAKE_BARRIER, 3},
    {PARTS, CUDA_MISTAKE_DIVERGENCE, 0},
    {PARTS, CUDA_MISTAKE_SHUFFLE, 41},
    {PARTS, CUDA_MISTAKE_LANE, 1},
    {PARTS, CUDA_MISTAKE_SHARED, 0},
    {PLAIN_DQ, CUDA_MISTAKE_BARRIER, 0},
    {PLAIN_DQ, CUDA_MISTAKE_BARRIER, 1},
    {PLAIN_DQ, CUDA_MISTAKE_WARP_BARRIER, 0},
    {PLAIN_DKV, CUDA_MISTAKE_BARRIER, 0},
    {PLAIN_DKV, CUDA_MISTAKE_BARRIER, 1},
    {PLAIN_DKV, CUDA_MISTAKE_WARP_BARRIER, 0},
    {PLAIN_DKV, CUDA_MISTAKE_SHARED, 1},
    {"cuda_gemm_plain", OP_MATMUL, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_gemm_plain", OP_MATMUL, 4, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_gemm_plain", OP_MATMUL, 4, CUDA_MISTAKE_DIVERGENCE, 1},
    {"cuda_gemm_plain", OP_MATMUL, 4, CUDA_MISTAKE_SHARED, 0},
    {"cuda_fp8_operand", OP_MATMUL, 60, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_fp8_operand", OP_MATMUL_DW, 18, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_fp8_operand", OP_MATMUL_DX, 25, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_fp8_most", OP_FP8_COUNTS, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_fp8_counts_rows", OP_FP8_COUNTS_ROWS, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_column_sums", OP_BIAS_DW, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_column_sums", OP_BIAS_DW, 4, CUDA_MISTAKE_SHARED, 0},
    {"cuda_norm", OP_LAYERNORM, 4, CUDA_MISTAKE_SHUFFLE, 14},
    {"cuda_norm", OP_LAYERNORM, 4, CUDA_MISTAKE_LANE, 3},
    {"cuda_norm_dx", OP_RMSNORM_DX, 4, CUDA_MISTAKE_SHUFFLE, 9},
    {"cuda_column_sums", OP_MAGNITUDE_DW, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_row_squares", OP_ROW_SQUARES, 0, CUDA_MISTAKE_LANE, 1},
    {"cuda_dequantize", OP_DEQUANTIZE, 7, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_dequantize", OP_DEQUANTIZE, 7, CUDA_MISTAKE_SHARED, 0},
    {"cuda_head_rows", OP_HEAD_LOSS, 1, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_head_rows", OP_HEAD_LOSS, 1, CUDA_MISTAKE_LANE, 1},
    {"cuda_head_rows", OP_HEAD_LOSS, 1, CUDA_MISTAKE_SHARED, 0},
    {"cuda_score", OP_SCORE, 0, CUDA_MISTAKE_LANE, 0},
    {"cuda_latent_cached", OP_LATENT_CACHED, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_latent_cached", OP_LATENT_CACHED, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_latent_cached", OP_LATENT_CACHED, 0, CUDA_MISTAKE_BARRIER, 2},
    {"cuda_latent_cached", OP_LATENT_CACHED, 0, CUDA_MISTAKE_BARRIER, 3},
    {"cuda_latent_cached", OP_LATENT_CACHED, 0, CUDA_MISTAKE_SHARED, 15},
    {"cuda_sample", OP_SAMPLE, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_sample", OP_SAMPLE, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_step_loss", OP_STEP_LOSS, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_step_loss", OP_STEP_LOSS, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_grad_norm", OP_GRAD_NORM, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_grad_norm", OP_GRAD_NORM, 4, CUDA_MISTAKE_SHUFFLE, 0},
    {"cuda_adamw", OP_ADAMW, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_adamw", OP_ADAMW, 0, CUDA_MISTAKE_SHARED, 3},
    {"cuda_lion", OP_LION, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_muon_squares", OP_MUON, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_muon_squares", OP_MUON, 0, CUDA_MISTAKE_SHUFFLE, 0},
    {"cuda_head_stats", OP_HEAD_STATS, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_head_stats", OP_HEAD_STATS, 0, CUDA_MISTAKE_LANE, 0},
    {"cuda_route", OP_ROUTE, 0, CUDA_MISTAKE_LANE, 1},
    {"cuda_route_bwd", OP_ROUTE_BWD, 0, CUDA_MISTAKE_WARP_BARRIER, 0},
    {"cuda_permute_count", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_permute_count", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_permute_offsets", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_permute_offsets", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_permute_rows", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_permute_rows", OP_PERMUTE, 0, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_count_rows", OP_COUNT_ROWS, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_sinks_terms", OP_SINKS_DW, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_grouped_plain_rows", OP_GROUPED_MATMUL, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_grouped_plain_sums", OP_GROUPED_MATMUL_DW, 0, CUDA_MISTAKE_BARRIER, 1},
};

// These are planted into the kernels of strict calls.
static const plant strict_plants[] = {
    {"cuda_column_sequence", OP_BIAS_DW, 4, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_column_sequence", OP_BIAS_DW, 4, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_column_sequence", OP_LAYERNORM_DW, 4, CUDA_MISTAKE_SHARED, 0},
    {"cuda_gemm_plain", OP_MATMUL_DW, 5, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_gemm_plain", OP_MATMUL_DW, 5, CUDA_MISTAKE_BARRIER, 1},
    {"cuda_grouped_plain_sums", OP_GROUPED_MATMUL_DW, 1, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_sinks_terms", OP_SINKS_DW, 0, CUDA_MISTAKE_LANE, 0},
};

// These are planted into products of 8 bits, which GPUs of 9.0 have, in the first sample of the
// recipe whose rows have a multiple of 16 numbers.
#define NARROW_PLANTS(kernel, code)                                                          \
    {kernel, code, 0, CUDA_MISTAKE_BARRIER, 0}, {kernel, code, 0, CUDA_MISTAKE_WAIT, 0},     \
        {kernel, code, 0, CUDA_MISTAKE_COPY, 0}, {kernel, code, 0, CUDA_MISTAKE_ADDRESS, 0}, \
        {kernel, code, 0, CUDA_MISTAKE_LOAD, 0},                                             \
    {                                                                                        \
        kernel, code, 0, CUDA_MISTAKE_FRAGMENT, 0                                            \
    }
static const plant narrow_plants[] = {
    NARROW_PLANTS("cuda_grouped_e4m3", OP_GROUPED_MATMUL),
    NARROW_PLANTS("cuda_grouped_e5m2", OP_GROUPED_MATMUL_DX),
    {"cuda_fp8_experts_codes", OP_GROUPED_MATMUL_DX, 0, CUDA_MISTAKE_BARRIER, 0},
    {"cuda_fp8_experts_codes", OP_GROUPED_MATMUL_DX, 0, CUDA_MISTAKE_BARRIER, 1},
};

static plant narrow_plant(const plant *p)
{
    plant out = *p;
    for (out.variant = 0; out.variant < op_sample_count(p->code); out.variant++) {
        arena *a;
        sample s;
        must(arena_create("sample", 0, &a));
        sample_open(a, p->code, out.variant, &s);
        const op_node *n = &s.node;
        const op_tensor *w = &s.program->tensors[n->in[1]];
        const bool fits = n->attrs.fp8 == FP8_TENSOR && w->dims[1].scale % 16 == 0 &&
                          w->dims[0].scale / n->attrs.experts % 16 == 0;
        arena_destroy(a);
        if (fits) return out;
    }
    fail_msg("%s: no sample has rows of a multiple of 16 numbers", p->kernel);
    return out;
}

static status planted_run(arena *a, const sample *s, backend_run *cuda, bool strict,
                          sample_memory **out)
{
    *out = sample_memory_create(a, s, 0);
    sample_fill(*out, 1, false);
    return sample_run(*out, cuda, false, strict);
}

static bool same_results(const sample_memory *x, const sample_memory *y)
{
    for (int64_t t = 0; t < x->of->program->tensor_count; t++) {
        const sample_buffer *b = &x->buffers[t];
        if (b->base != NULL && memcmp(b->base, y->buffers[t].base, (size_t)b->bytes) != 0) {
            return false;
        }
    }
    const step_device *p = &x->step.device, *q = &y->step.device;
    return memcmp(p->loss_sum.digit, q->loss_sum.digit, sizeof(p->loss_sum.digit)) == 0 &&
           memcmp(p->norm_sum.digit, q->norm_sum.digit, sizeof(p->norm_sum.digit)) == 0 &&
           p->tokens == q->tokens;
}

static bool is_found(const plant *p, backend_run *cuda, bool strict)
{
    arena *a;
    sample s;
    sample_memory *right, *wrong;
    bool found = false;
    must(arena_create("plants", 0, &a));
    sample_open(a, p->code, p->variant, &s);
    cuda->emulator.mistaken = NULL;
    must(planted_run(a, &s, cuda, strict, &right));
    cuda->emulator.mistaken = p->kernel;
    cuda->emulator.mistake = p->mistake;
    cuda->emulator.at = p->at;
    cuda->emulator.made = 0;
    for (uint64_t schedule = 0; schedule < 3 && !found; schedule++) {
        cuda->emulator.schedule = schedule;
        found = planted_run(a, &s, cuda, strict, &wrong) != ST_OK || !same_results(right, wrong);
    }
    if (!found) {
        print_error("%s: mistake %d at %d, made %lld times, is not found\n", p->kernel,
                    (int)p->mistake, p->at, (long long)cuda->emulator.made);
    }
    cuda->emulator.schedule = 0;
    arena_destroy(a);
    return found;
}

static void test_planted_mistakes(void **state)
{
    (void)state;
#ifndef TRIREME_RACES
    skip();
#endif
    backend_run cuda;
    int missed = 0;
    backend_run_init(&cuda, &kern_backend_cuda, KERN_SCALAR, 1);
    for (int64_t i = 0; i < COUNT_OF(plants); i++) missed += !is_found(&plants[i], &cuda, false);
    for (int64_t i = 0; i < COUNT_OF(strict_plants); i++) {
        missed += !is_found(&strict_plants[i], &cuda, true);
    }
    cuda_emulator_sm90(&cuda.emulator);
    for (int64_t i = 0; i < COUNT_OF(narrow_plants); i++) {
        const plant p = narrow_plant(&narrow_plants[i]);
        missed += !is_found(&p, &cuda, false);
    }
    print_message("%lld mistakes planted, %d not found\n",
                  (long long)(COUNT_OF(plants) + COUNT_OF(strict_plants) + COUNT_OF(narrow_plants)),
                  missed);
    backend_runs_deinit(&cuda, 1);
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_planted_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
