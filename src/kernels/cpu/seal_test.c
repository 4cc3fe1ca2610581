// Seals of the state at rest: updates with and without one give the same bits, and a bit that
// changes in any tile of any operand, between two updates, is found in that tile by the second.
#include "fixtures/kernels/backend_fixture.h"
#include "fixtures/kernels/tensor_fixture.h"
#include "op/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, COLUMNS = KERN_SEAL_ELEMENTS + 77, ELEMENTS = ROWS * COLUMNS, TILES = 4 };

typedef struct kind {
    op_code code;
    int states;                  // in[1] to in[states], which are out[0] to out[states - 1]
    dtype grad, moments, weight; // weight DTYPE_COUNT: the master serves as weight
    bool stochastic;
} kind;

static const kind kinds[] = {
    {OP_ADAMW, 3, DTYPE_F32, DTYPE_F32, DTYPE_COUNT, false},
    {OP_ADAMW, 3, DTYPE_F32, DTYPE_F32, DTYPE_BF16, false},
    {OP_ADAMW, 3, DTYPE_BF16, DTYPE_BF16, DTYPE_F16, true},
    {OP_LION, 2, DTYPE_F32, DTYPE_F32, DTYPE_COUNT, false},
    {OP_LION, 2, DTYPE_BF16, DTYPE_BF16, DTYPE_BF16, true},
};

typedef struct update {
    arena *a;
    step_block *step;
    kern_call call;
    kern_seal seal;
} update;

static int64_t bytes_of(const kern_tensor *t)
{
    return ELEMENTS * dtype_bytes(t->type);
}

static void tiles_keep(const kern_context *c, const kern_tensor *t, kern_tile *tiles)
{
    assert_int_equal(kern_seal_tiles(ELEMENTS), TILES);
    for (int64_t k = 0; k < TILES; k++) {
        tiles[k].hash = kern_seal_hash(c, t->data, bytes_of(t), t->type, k);
    }
}

static kern_tensor operand(arena *a, dtype type, int number)
{
    kern_tensor t = kt_make(a, type, 2, (int64_t[]){ROWS, COLUMNS});
    for (int64_t e = 0; e < ELEMENTS; e++) {
        const double x = test_uniform(7, number, e);
        kt_put(&t, e, number == 3 ? x * x : x);
    }
    return t;
}

static void update_make(const kern_context *context, const kind *k, bool seals, update *u)
{
    *u = (update){.call = {.code = k->code, .seq = 1, .strict = true}};
    must(arena_create("test", 0, &u->a));
    must(arena_new(u->a, 1, &u->step));
    step_device_init(&u->step->device, 1.0);
    u->step->host = (step_host){.step = 3, .seed = 1, .lr = 0.01};
    u->step->device.applied = 3;
    u->step->device.grad_factor = 0.5;
    kern_call *c = &u->call;
    c->step = u->step;
    c->attrs = (op_attrs){.beta1 = 0.9F,
                          .beta2 = 0.99F,
                          .eps = 1e-8F,
                          .weight_decay = 0.1F,
                          .decay = true,
                          .stochastic = k->stochastic,
                          .lr_scale = 1.0F};
    c->in[0] = operand(u->a, k->grad, 0);
    for (int i = 1; i <= k->states; i++) {
        c->in[i] = operand(u->a, i == 1 ? DTYPE_F32 : k->moments, i);
        c->out[i - 1] = c->in[i];
    }
    if (k->weight != DTYPE_COUNT) c->out[k->states] = operand(u->a, k->weight, 1);
    if (!seals) return;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (c->out[o].data == NULL) continue;
        must(arena_new(u->a, TILES, &u->seal.out[o]));
        tiles_keep(context, &c->out[o], u->seal.out[o]);
    }
    must(arena_new(u->a, TILES, &u->seal.grad));
    tiles_keep(context, &c->in[0], u->seal.grad);
    u->seal.compares_grad = true;
    c->seal = &u->seal;
}

static int64_t changed_count(const update *u)
{
    int64_t count = 0;
    for (int o = 0; o <= OP_MAX_OUT; o++) {
        const kern_tile *tiles = o < OP_MAX_OUT ? u->seal.out[o] : u->seal.grad;
        for (int64_t k = 0; tiles != NULL && k < TILES; k++) count += tiles[k].has_changed;
    }
    return count;
}

// The state and its hashes agree with those of an update without a seal.
static void same_as(const kern_context *c, const update *u, const update *plain)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *t = &u->call.out[o];
        if (t->data == NULL) continue;
        assert_memory_equal(t->data, plain->call.out[o].data, (size_t)bytes_of(t));
        for (int64_t k = 0; k < TILES; k++) {
            const uint64_t hash = kern_seal_hash(c, t->data, bytes_of(t), t->type, k);
            assert_true(u->seal.out[o][k].hash == hash);
        }
    }
}

// least: the vector levels from this one on.
static void each_run(void (*check)(const kern_context *, const kind *), kern_level least)
{
    backend_run runs[BACKEND_MAX_RUNS];
    for (int threads = 1; threads <= 2; threads++) {
        const int count = backend_runs_init(runs, threads);
        for (int i = 0; i < count; i++) {
            const kern_context *c = &runs[i].context;
            for (int k = 0; k < COUNT_OF(kinds) && c->level >= least; k++) {
                if (kern_seals(c, kinds[k].code)) check(c, &kinds[k]);
            }
        }
        backend_runs_deinit(runs, count);
    }
}

static void bits_check(const kern_context *c, const kind *k)
{
    update sealed, plain;
    update_make(c, k, true, &sealed);
    update_make(c, k, false, &plain);
    for (int n = 0; n < 2; n++) {
        must(kern_run(c, &sealed.call));
        must(kern_run(c, &plain.call));
        assert_int_equal(changed_count(&sealed), 0);
        same_as(c, &sealed, &plain);
    }
    // A skipped step compares, and writes nothing.
    sealed.step->device.skip = 1;
    must(kern_run(c, &sealed.call));
    assert_int_equal(changed_count(&sealed), 0);
    same_as(c, &sealed, &plain);
    ((char *)sealed.call.out[0].data)[0] ^= 1;
    must(kern_run(c, &sealed.call));
    assert_int_equal(changed_count(&sealed), 1);
    arena_destroy(sealed.a);
    arena_destroy(plain.a);
}

static void a_seal_changes_no_bit(void **state)
{
    (void)state;
    each_run(bits_check, KERN_SCALAR);
}

// One bit of a tile: of each operand, at its first, last and some other byte.
static void flip_check(const kern_context *c, const kind *k)
{
    update u;
    update_make(c, k, true, &u);
    must(kern_run(c, &u.call));
    for (int o = 0; o <= OP_MAX_OUT; o++) {
        const kern_tensor *t = o < OP_MAX_OUT ? &u.call.out[o] : &u.call.in[0];
        kern_tile *tiles = o < OP_MAX_OUT ? u.seal.out[o] : u.seal.grad;
        if (tiles == NULL) continue;
        const int64_t whole = KERN_SEAL_ELEMENTS * dtype_bytes(t->type);
        for (int64_t tile = 0; tile < TILES; tile++) {
            const int64_t begin = tile * whole, end = min_i64(begin + whole, bytes_of(t));
            const int64_t places[] = {begin, end - 1, begin + (end - begin) * (1 + o) / 7};
            const int64_t at = places[(tile + o) % COUNT_OF(places)];
            ((char *)t->data)[at] ^= (char)(1 << (tile + o) % 7);
            if (o == OP_MAX_OUT) { // a pass of a halted run has another gradient
                u.step->device.halt = 1;
                must(kern_run(c, &u.call));
                assert_int_equal(changed_count(&u), 0);
                u.step->device.halt = 0;
                ((char *)t->data)[at] ^= (char)(1 << (tile + o) % 7);
            }
            must(kern_run(c, &u.call));
            assert_int_equal(changed_count(&u), 1);
            assert_true(tiles[tile].has_changed);
            tiles[tile].has_changed = false;
            must(kern_run(c, &u.call)); // the hash is that of the new bytes again
            assert_int_equal(changed_count(&u), 0);
        }
    }
    arena_destroy(u.a);
}

static void a_flip_in_any_tile_is_found(void **state)
{
    (void)state;
    each_run(flip_check, kern_level_of_machine());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_changes_no_bit),
        cmocka_unit_test(a_flip_in_any_tile_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
