// Attention on GPUs of compute capability 9.0, in the emulator: against `ref` over shapes with
// edges on all sides, the same bits in every schedule, and matrices of products by their
// descriptors.
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/pair_fixture.h"

static void pair_begin(backend_pair *p)
{
    pair_open(p);
    cuda_emulator_sm90(&p->cuda.emulator);
}

// By the kernels for capability 9.0 and by ref; and in schedules in which warps starve.
static kern_call check(backend_pair *p, const kern_call *call, double tolerance, const char *name)
{
    const int64_t launches = p->cuda.emulator.launches;
    const kern_call want = pair_run(p, &p->ref, call), got = pair_run(p, &p->cuda, call);
    assert_true(p->cuda.emulator.launches > launches);
    assert_true(p->cuda.emulator.wgmma_launches > 0);
    pair_compare(&want, &got, tolerance, name);
    pair_reschedule(p, call, &got, name);
    return want;
}

typedef struct attention_case {
    const char *name;
    int64_t sequences, seq, heads, kv_heads, dim;
    int32_t window;
    bool documents, sinks;
    int64_t value; // columns of a head of v and y; 0: dim
    float dropout, cap;
} attention_case;

static step_block step = {.host = {.step = 7, .seed = 0x123456789abcdef0u}};

static kern_call forward_call(backend_pair *p, const attention_case *c, dtype type)
{
    const int64_t rows = c->sequences * c->seq, wide = c->heads * c->dim;
    const int64_t narrow = c->kv_heads * c->dim, value = c->value > 0 ? c->value : c->dim;
    const kern_tensor q = pair_matrix(p, type, rows, wide, 8, 1),
                      k = pair_matrix(p, type, rows, narrow, 8, 2);
    const kern_tensor v = pair_matrix(p, type, rows, c->kv_heads * value, 0, 3);
    const kern_tensor lse = pair_matrix(p, DTYPE_F32, rows, c->heads, 0, 4);
    kern_tensor documents = {.data = NULL}, sinks = {.data = NULL};
    if (c->documents) documents = kt_make(p->a, DTYPE_I32, 1, &rows);
    for (int64_t i = 0; i < rows && c->documents; i++) {
        kt_put(&documents, i, (double)(i / c->seq * 1000 + i % c->seq / 45));
    }
    if (c->sinks) sinks = kt_make(p->a, DTYPE_F32, 1, &c->heads);
    for (int64_t i = 0; i < c->heads && c->sinks; i++) kt_put(&sinks, i, 0.5 * (double)i);
    kern_call forward = {.code = OP_ATTENTION,
                         .in = {q, k, v, documents, {.data = NULL}, sinks},
                         .out = {pair_matrix(p, type, rows, c->heads * value, 0, 5), lse},
                         .seq = c->seq};
    forward.attrs.heads = (int32_t)c->heads;
    forward.attrs.kv_heads = (int32_t)c->kv_heads;
    forward.attrs.head_dim = (int32_t)c->dim;
    forward.attrs.value_dim = (int32_t)c->value;
    forward.attrs.window = c->window;
    forward.attrs.sinks = c->sinks;
    forward.attrs.scale = 1.5f / sqrtf((float)c->dim);
    forward.attrs.dropout = c->dropout;
    forward.attrs.cap = c->cap;
    forward.attrs.site = 5;
    forward.step = &step;
    forward.first_sequence = 3;
    return forward;
}

// Makes the gradient call of a forward call that ran.
static kern_call backward_call(backend_pair *p, const attention_case *c, const kern_call *forward)
{
    const dtype type = forward->in[0].type;
    kern_call backward = *forward;
    const kern_tensor dy =
        pair_matrix(p, type, c->sequences * c->seq, forward->out[0].dims[1], 0, 6);
    const kern_tensor in[] = {dy,
                              forward->in[0],
                              forward->in[1],
                              forward->in[2],
                              forward->out[0],
                              forward->out[1],
                              forward->in[3]};
    backward.code = OP_ATTENTION_BWD;
    memcpy(backward.in, in, sizeof(in));
    for (int o = 0; o < 3; o++) {
        backward.out[o] =
            pair_matrix(p, type, forward->in[o].dims[0], forward->in[o].dims[1], 0, 7 + o);
    }
    return backward;
}

static void test_attention(void **state)
{
    (void)state;
    static const attention_case cases[] = {
        {"a head of 128", 1, 300, 1, 1, 128, 0, false, false, 0, 0.0f, 0.0f},
        {"keys shared", 2, 150, 4, 2, 64, 0, false, true, 0, 0.0f, 0.0f},
        {"a window", 1, 400, 1, 1, 64, 70, false, false, 0, 0.0f, 0.0f},
        {"documents", 1, 260, 2, 1, 128, 0, true, false, 0, 0.0f, 0.0f},
        {"dropout and a cap", 2, 150, 2, 1, 64, 0, false, false, 0, 0.3f, 1.5f},
        {"dropout in a window", 1, 190, 1, 1, 128, 50, true, true, 0, 0.2f, 0.0f},
        {"narrow heads", 3, 33, 2, 2, 24, 0, false, false, 16, 0.0f, 0.0f},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const dtype types[] = {DTYPE_BF16, DTYPE_F16};
        for (int64_t k = 0; k < COUNT_OF(types); k++) {
            if (part_skips(CASES_PART, i, COUNT_OF(cases), k, COUNT_OF(types))) continue;
            backend_pair p;
            pair_begin(&p);
            const kern_call call = forward_call(&p, &cases[i], types[k]);
            const double tolerance = types[k] == DTYPE_BF16 ? 0.012 : 0.002;
            const kern_call want = check(&p, &call, tolerance, cases[i].name);
            const kern_call backward = backward_call(&p, &cases[i], &want);
            (void)check(&p, &backward, 1.5 * tolerance, cases[i].name);
            pair_close(&p);
        }
    }
}

// ---- planted mistakes ---------------------------------------------------------------------------
typedef struct plant {
    cuda_mistake mistake;
    int at;
} plant;

// One head of 300 queries: blocks with one, two and three tiles of keys, so both stages are used
// twice. Each mistake is made at one place only, except that waits leave one group more everywhere.
static const plant forward_plants[] = {
    {CUDA_MISTAKE_BARRIER, 0},      {CUDA_MISTAKE_PHASE_WAIT, 5},   {CUDA_MISTAKE_COUNT, 0},
    {CUDA_MISTAKE_COUNT, 3},        {CUDA_MISTAKE_PHASE_FENCE, 0},  {CUDA_MISTAKE_PHASE_WAIT, 0},
    {CUDA_MISTAKE_PHASE_WAIT, 1},   {CUDA_MISTAKE_PHASE_WAIT, 2},   {CUDA_MISTAKE_PHASE_WAIT, 3},
    {CUDA_MISTAKE_PHASE_WAIT, 4},   {CUDA_MISTAKE_PARITY, 1},       {CUDA_MISTAKE_PARITY, 4},
    {CUDA_MISTAKE_ARRIVE, 0},       {CUDA_MISTAKE_EXPECT, 0},       {CUDA_MISTAKE_EXPECT, 1},
    {CUDA_MISTAKE_EXPECT, 4},       {CUDA_MISTAKE_TILE, 0},         {CUDA_MISTAKE_TILE, 3},
    {CUDA_MISTAKE_TILE_PLACE, 0},   {CUDA_MISTAKE_TILE_PLACE, 2},   {CUDA_MISTAKE_TILE_PLACE, 3},
    {CUDA_MISTAKE_TILE_SWIZZLE, 0}, {CUDA_MISTAKE_TILE_SWIZZLE, 3}, {CUDA_MISTAKE_SWIZZLE, 0},
    {CUDA_MISTAKE_SWIZZLE, 5},      {CUDA_MISTAKE_STRIDE, 1},       {CUDA_MISTAKE_STRIDE, 6},
    {CUDA_MISTAKE_MATRIX, 2},       {CUDA_MISTAKE_MATRIX, 7},       {CUDA_MISTAKE_SUM, 2},
    {CUDA_MISTAKE_SUM, 6},          {CUDA_MISTAKE_GROUP_FENCE, 0},  {CUDA_MISTAKE_GROUP_FENCE, 1},
    {CUDA_MISTAKE_GROUP_COMMIT, 0}, {CUDA_MISTAKE_GROUP_COMMIT, 1}, {CUDA_MISTAKE_GROUP_WAIT, 0},
    {CUDA_MISTAKE_SHUFFLE, 0},      {CUDA_MISTAKE_LANE, 1},         {CUDA_MISTAKE_SHARED, 0},
};

static bool same_bits(const kern_call *a, const kern_call *b)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (a->out[o].data == NULL) continue;
        const int64_t bytes = kt_elements(&a->out[o]) * dtype_bytes(a->out[o].type);
        if (memcmp(a->out[o].data, b->out[o].data, (size_t)bytes) != 0) return false;
    }
    return true;
}

static bool is_found(backend_pair *p, const kern_call *call, const kern_call *right,
                     const char *kernel, const plant *planted)
{
    cuda_emulator *e = &p->cuda.emulator;
    bool found = false;
    e->mistaken = kernel;
    e->mistake = planted->mistake;
    e->at = planted->at;
    e->made = 0;
    for (uint64_t schedule = 0; schedule < 4 && !found; schedule++) {
        const kern_call wrong = pair_call(p, &p->cuda, call);
        e->schedule = schedule;
        found = kern_run(&p->cuda.context, &wrong) != ST_OK || !same_bits(right, &wrong);
    }
    e->schedule = 0;
    e->mistaken = NULL;
    if (!found) {
        print_error("%s: mistake %d at %d, made %lld times, is not found\n", kernel,
                    (int)planted->mistake, planted->at, (long long)e->made);
    }
    return found;
}

// Two heads of 200 queries share keys: four and eight tiles, and both stages are used twice.
static const plant dq_plants[] = {
    {CUDA_MISTAKE_PHASE_WAIT, 0}, {CUDA_MISTAKE_PHASE_WAIT, 1},  {CUDA_MISTAKE_PHASE_WAIT, 3},
    {CUDA_MISTAKE_PARITY, 2},     {CUDA_MISTAKE_ARRIVE, 1},      {CUDA_MISTAKE_EXPECT, 2},
    {CUDA_MISTAKE_TILE, 2},       {CUDA_MISTAKE_TILE_PLACE, 5},  {CUDA_MISTAKE_TILE_SWIZZLE, 4},
    {CUDA_MISTAKE_SWIZZLE, 8},    {CUDA_MISTAKE_STRIDE, 9},      {CUDA_MISTAKE_MATRIX, 3},
    {CUDA_MISTAKE_SUM, 17},       {CUDA_MISTAKE_GROUP_FENCE, 1}, {CUDA_MISTAKE_GROUP_WAIT, 0},
};
static const plant dkv_plants[] = {
    {CUDA_MISTAKE_BARRIER, 0},     {CUDA_MISTAKE_PHASE_FENCE, 0}, {CUDA_MISTAKE_PHASE_WAIT, 1},
    {CUDA_MISTAKE_PHASE_WAIT, 2},  {CUDA_MISTAKE_PHASE_WAIT, 4},  {CUDA_MISTAKE_PARITY, 3},
    {CUDA_MISTAKE_ARRIVE, 0},      {CUDA_MISTAKE_COUNT, 2},       {CUDA_MISTAKE_EXPECT, 1},
    {CUDA_MISTAKE_TILE, 6},        {CUDA_MISTAKE_TILE_PLACE, 4},  {CUDA_MISTAKE_TILE_SWIZZLE, 5},
    {CUDA_MISTAKE_SWIZZLE, 10},    {CUDA_MISTAKE_STRIDE, 12},     {CUDA_MISTAKE_MATRIX, 0},
    {CUDA_MISTAKE_GROUP_FENCE, 1}, {CUDA_MISTAKE_GROUP_WAIT, 0},  {CUDA_MISTAKE_GROUP_COMMIT, 1},
    {CUDA_MISTAKE_SHARED, 0},
};

// Returns how many of the mistakes are not found.
static int plant_all(backend_pair *p, const kern_call *call, const char *kernel,
                     const plant *plants, int64_t count)
{
    int missed = 0;
    const kern_call right = pair_run(p, &p->cuda, call);
    int64_t planted = 0;
    for (int64_t i = 0; i < count; i += part_of(CASES_PART), planted++) {
        missed += !is_found(p, call, &right, kernel, &plants[i]);
    }
    print_message("%s: %lld mistakes planted, %d not found\n", kernel, (long long)planted, missed);
    return missed;
}

static void test_planted_mistakes(void **state)
{
    (void)state;
    static const attention_case one = {"plants", 1, 300, 1, 1, 64, 0, false, false, 0, 0.0f, 0.0f};
    static const attention_case two = {"shared", 1, 200, 2, 1, 64, 0, false, false, 0, 0.0f, 0.0f};
    // A head of 128 columns has two pieces of 64, whose distance the values' matrices tell; the
    // group's results lie otherwise than its queries.
    static const attention_case wide = {"wide", 1, 130, 1, 1, 128, 0, false, false, 0, 0.0f, 0.0f};
    // With dropout lanes that share words must all be there, and each must get the others' words.
    static const attention_case drops = {"drops", 1, 130, 1, 1, 64, 0, false, false, 0, 0.3f, 1.0f};
    static const plant drop_plants[] = {{CUDA_MISTAKE_SHUFFLE, 9},
                                        {CUDA_MISTAKE_LANE, 4},
                                        {CUDA_MISTAKE_SHUFFLE, 7},
                                        {CUDA_MISTAKE_GROUP_WAIT, 0}};
    static const plant wide_plants[] = {{CUDA_MISTAKE_LEADING, 8}, {CUDA_MISTAKE_PART_BARRIER, 0}};
    backend_pair p;
    pair_begin(&p);
    const kern_call forward = forward_call(&p, &one, DTYPE_BF16);
    const kern_call wider = forward_call(&p, &wide, DTYPE_BF16);
    kern_call backward = forward_call(&p, &two, DTYPE_BF16);
    backward = pair_run(&p, &p.ref, &backward);
    backward = backward_call(&p, &two, &backward);
    int missed = plant_all(&p, &forward, "cuda_attention_wgmma_bf16_64", forward_plants,
                           COUNT_OF(forward_plants));
    missed +=
        plant_all(&p, &wider, "cuda_attention_wgmma_bf16_128", wide_plants, COUNT_OF(wide_plants));
    missed +=
        plant_all(&p, &backward, "cuda_attention_wgmma_dq_bf16_64", dq_plants, COUNT_OF(dq_plants));
    missed += plant_all(&p, &backward, "cuda_attention_wgmma_dkv_bf16_64", dkv_plants,
                        COUNT_OF(dkv_plants));
    const kern_call dropped = forward_call(&p, &drops, DTYPE_BF16);
    kern_call dropped_back = pair_run(&p, &p.ref, &dropped);
    dropped_back = backward_call(&p, &drops, &dropped_back);
    missed += plant_all(&p, &dropped, "cuda_attention_wgmma_more_bf16_64", drop_plants,
                        COUNT_OF(drop_plants));
    missed += plant_all(&p, &dropped_back, "cuda_attention_wgmma_dkv_more_bf16_64", drop_plants,
                        COUNT_OF(drop_plants));
    pair_close(&p);
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_planted_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
