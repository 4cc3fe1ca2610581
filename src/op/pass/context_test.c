// Context parallelism as a pass: the operations of a rank's program, that a ring never has all
// keys, and how even the distribution of positions is.
#include "base/rng.h"
#include "fixtures/op/blocks_fixture.h"
#include "op/pass/context.h"
#include "op/zigzag.h"

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("context", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

// Cuts a layer of the fixture's second family for one rank.
static const op_program *cut(const op_context *how)
{
    static op_model whole;
    static op_program *programs[1];
    static op_layer layer;
    op_model *local = NULL;
    int32_t *map = NULL;
    programs[0] = block_llama(a, PURPOSE_TRAIN, false);
    MUST(op_program_differentiate(programs[0]));
    MUST(arena_new(a, programs[0]->tensor_count + 1, &map));
    memset(map, -1, (size_t)programs[0]->tensor_count * sizeof(*map));
    layer = (op_layer){.name = "layers.0", .weight_of = map};
    whole =
        (op_model){.programs = programs, .program_count = 1, .layers = &layer, .layer_count = 1};
    MUST(op_model_context(a, &whole, how, &local));
    return local->programs[0];
}

static int64_t most_rows(const op_program *p)
{
    int64_t most = 0;
    for (int64_t t = 0; t < p->tensor_count; t++) {
        const extent rows = p->tensors[t].dims[0];
        if (rows.symbol == EXTENT_TOKENS) most = max_i64(most, rows.scale);
    }
    return most;
}

static void keys_are_gathered_or_travel(void **state)
{
    (void)state;
    for (int32_t ways = 2; ways <= 8; ways *= 2) {
        for (int32_t at = 0; at < ways; at++) {
            op_context how = {.ways = ways, .at = at, .shards = 1};
            const op_program *p = cut(&how);
            assert_int_equal(count_of(p, OP_FORWARD, OP_ALL_GATHER), 1);
            assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ALL_GATHER), 1);
            assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_REDUCE_SCATTER), 1);
            assert_int_equal(most_rows(p), ways);
            how.ring = true;
            p = cut(&how);
            assert_int_equal(count_of(p, OP_FORWARD, OP_SHIFT), ways - 1);
            assert_int_equal(count_of(p, OP_FORWARD, OP_ATTENTION), ways);
            assert_int_equal(count_of(p, OP_FORWARD, OP_ATTENTION_MERGE), ways - 1);
            assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_SHIFT), 2 * ways - 1);
            assert_int_equal(most_rows(p), 1); // never more keys than the rank's own
            uint32_t met = 0;
            for (int k = 0; k < ways; k++) {
                met |= 1u << node_of(p, OP_FORWARD, OP_ATTENTION, k)->piece.key_at;
            }
            assert_int_equal(met, (1u << ways) - 1);
        }
    }
}

static void heads_are_distributed(void **state)
{
    (void)state;
    static const int32_t layouts[][2] = {{2, 2}, {4, 2}, {4, 4}, {8, 4}};
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        const int32_t ways = layouts[i][0], heads = layouts[i][1];
        for (int32_t at = 0; at < ways; at++) {
            const op_context how = {.ways = ways, .at = at, .heads = heads, .shards = 1};
            const op_program *p = cut(&how);
            const op_node *node = node_of(p, OP_FORWARD, OP_ATTENTION, 0);
            assert_int_equal(count_of(p, OP_FORWARD, OP_ALL_TO_ALL), 2);
            assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ALL_TO_ALL), 2);
            assert_int_equal(count_of(p, OP_FORWARD, OP_ALL_GATHER), ways > heads);
            assert_int_equal(node->attrs.heads, BLOCK_HEADS / heads);
            assert_int_equal(node->piece.first_head, at % heads * (BLOCK_HEADS / heads));
            assert_int_equal(node->attrs.kv_heads, heads < BLOCK_KV ? BLOCK_KV / heads : 1);
            assert_int_equal(node->piece.seq_ways, heads);
            assert_int_equal(op_at(p, node->in[0])->dims[0].scale, heads);
            assert_int_equal(op_at(p, node->in[1])->dims[0].scale, ways);
        }
    }
}

// A rank reads the losses of whole sequences, and writes those of its rows.
static void losses_of_answers_are_gathered(void **state)
{
    (void)state;
    for (int32_t at = 0; at < 4; at++) {
        op_program *p = NULL;
        op_model *local = NULL;
        tensor_id in[5];
        op_objective_rows rows;
        MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
        MUST(op_tensor_make(p, "x", ROLE_INPUT, DTYPE_F32, 2, extent_tokens(1), extent_of(8),
                            &in[0]));
        MUST(
            op_tensor_make(p, "w", ROLE_WEIGHT, DTYPE_F32, 2, extent_of(16), extent_of(8), &in[1]));
        MUST(op_tensor_make(p, "labels", ROLE_BATCH, DTYPE_I32, 1, extent_tokens(1), extent_of(1),
                            &in[2]));
        MUST(op_tensor_make(p, "documents", ROLE_BATCH, DTYPE_I32, 1, extent_tokens(1),
                            extent_of(1), &in[3]));
        MUST(op_tensor_make(p, "given", ROLE_BATCH, DTYPE_F32, 2, extent_tokens(1),
                            extent_of(GIVEN_COLUMNS), &in[4]));
        const op_objective_attrs dpo = {.kind = OBJECTIVE_DPO, .beta = 0.5f};
        MUST(op_head_objective(p, in, &(op_head_options){.cap = 0.0f}, &dpo, &rows));
        op_model whole = {.programs = &p, .program_count = 1};
        const op_context how = {.ways = 4, .at = at, .heads = 2, .shards = 1};
        MUST(op_model_context(a, &whole, &how, &local));
        const op_program *own = local->programs[0];
        const op_node *gather = node_of(own, OP_FORWARD, OP_ALL_GATHER, 0);
        const op_node *node = node_of(own, OP_FORWARD, OP_OBJECTIVE, 0);
        assert_int_equal(count_of(own, OP_FORWARD, OP_ALL_GATHER), 1);
        assert_int_equal(gather->in[0], rows.token_losses);
        assert_int_equal(gather->piece.cp_ways,
                         4); // of all ranks, not of those with the same heads
        assert_int_equal(node->in[0], gather->out[0]);
        assert_int_equal(node->piece.cp_at, at);
        for (int i = 0; i < 3; i++) assert_int_equal(op_at(own, node->in[i])->dims[0].scale, 4);
        for (int o = 0; o < 4; o++) assert_int_equal(op_at(own, node->out[o])->dims[0].scale, 1);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static op_model m;
    static op_program *programs[1];
    op_model *local = NULL;
    programs[0] = block_llama(a, PURPOSE_TRAIN, false);
    MUST(op_program_differentiate(programs[0]));
    m = (op_model){.programs = programs, .program_count = 1};
    const op_context three = {.ways = 6, .heads = 3, .shards = 1};
    assert_int_equal(op_model_context(a, &m, &three, &local), ST_CONFIG_CONFLICT);
    const op_context uneven = {.ways = 6, .heads = 4, .shards = 1};
    assert_int_equal(op_model_context(a, &m, &uneven, &local), ST_CONFIG_CONFLICT);
    const op_context ring = {.ways = 2, .shards = 2, .ordered = true, .ring = true};
    assert_int_equal(op_model_context(a, &m, &ring, &local), ST_CONFIG_CONFLICT);
    const op_context same = {.ways = 4, .heads = 4, .shards = 4, .ordered = true};
    assert_int_equal(op_model_context(a, &m, &same, &local), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "2 heads of keys in strict order"));
}

// ---- pieces -------------------------------------------------------------------------------------

// Every position occurs once; gathered rows are at the index that zigzag_row returns; several
// neighbouring ranks together have the rows of one rank of a smaller axis.
static void positions_are_distributed_once(void **state)
{
    (void)state;
    for (int64_t turns = 1; turns <= ZIGZAG_MAX_TURNS; turns *= 2) {
        for (int64_t ways = 1; ways <= 8; ways *= 2) {
            const int64_t seq = 64, rows = seq / ways, sizes = zigzag_pieces(turns);
            int64_t run = 0, met = 0;
            for (int64_t at = 0; at < ways; at++) {
                for (int64_t row = 0; row < rows; row++) {
                    const int64_t p = zigzag_position(ways, turns, at, rows, row);
                    const int64_t size = rows / sizes, k = row / size;
                    const int64_t gathered = (k * ways + at) * size + row % size;
                    met += p;
                    if (ways > 1) assert_int_equal(zigzag_row(ways, turns, seq, p, &run), gathered);
                }
            }
            assert_int_equal(met, seq * (seq - 1) / 2);
            for (int64_t heads = 2; heads <= ways; heads *= 2) {
                for (int64_t row = 0; row < 2 * heads * rows; row++) { // two sequences
                    const int64_t to =
                        zigzag_ordered_row(heads, turns, 2 * heads * rows, rows, row);
                    const int64_t tile = row / (2 * rows), each = heads * rows;
                    assert_int_equal(to / each, row % (2 * rows) / rows);
                    assert_int_equal(zigzag_position(ways / heads, turns, 0, each, to % each),
                                     zigzag_position(ways, turns, tile, rows, row % rows));
                }
            }
        }
    }
}

// Draws documents of random lengths around a mean, packed into sequences.
static void documents_draw(uint64_t seed, int64_t seq, int64_t mean, int32_t *length_so_far)
{
    int64_t left = 0;
    for (int64_t t = 0, n = 0, drawn = 0; t < seq; t++, left--) {
        if (left == 0 && t > 0) n = 0;
        if (left <= 0) { // between a quarter of the mean and seven quarters
            left = mean / 4 +
                   (int64_t)(rng_word(seed, 1, (uint64_t)drawn++) % (uint64_t)(3 * mean / 2));
            if (t == 0) n = (int64_t)(rng_word(seed, 2, 0) % (uint64_t)mean); // one continues
        }
        length_so_far[t] = (int32_t)(n++ + 1);
        if (length_so_far[t] > t + 1) length_so_far[t] = (int32_t)(t + 1);
    }
}

// Returns the pairs of the fullest rank over the mean.
static double unevenness(int64_t ways, int64_t turns, int64_t sequences, int64_t mean)
{
    enum { SEQ = 1024 };
    int32_t pairs[SEQ];
    double own[8] = {0.0}, all = 0.0, most = 0.0;
    for (int64_t s = 0; s < sequences; s++) {
        documents_draw((uint64_t)(s + 100 * mean), SEQ, mean, pairs);
        for (int64_t i = 0; i < SEQ; i++) {
            const int64_t at = i / (SEQ / ways), row = i % (SEQ / ways);
            own[at] += pairs[zigzag_position(ways, turns, at, SEQ / ways, row)];
        }
    }
    for (int64_t at = 0; at < ways; at++) {
        all += own[at];
        most = own[at] > most ? own[at] : most;
    }
    return most * (double)ways / all;
}

static void packed_documents_are_balanced(void **state)
{
    (void)state;
    static const int64_t means[] = {64, 256, 512, 4096};
    for (int i = 0; i < COUNT_OF(means); i++) {
        for (int64_t ways = 2; ways <= 8; ways *= 2) {
            double mean[2] = {0.0, 0.0};
            for (int k = 0; k < 2; k++) {
                for (int64_t m = 0; m < 16; m++) {
                    mean[k] +=
                        unevenness(ways, k == 0 ? 1 : ZIGZAG_MAX_TURNS, 4, means[i] + m) / 16.0;
                }
            }
            print_message("documents of about %lld in 4 x 1024, cp %lld: the fullest rank has "
                          "%.3f of the mean with one turn, %.3f with %d\n",
                          (long long)means[i], (long long)ways, mean[0], mean[1],
                          (int)ZIGZAG_MAX_TURNS);
            assert_true(mean[1] < 1.2);
            // Documents of 64 tokens are shorter than a piece; those of 4,096 fill every sequence,
            // like causal masks.
            assert_true(mean[1] < mean[0] || means[i] < 128 || mean[0] < 1.005);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keys_are_gathered_or_travel, setup, teardown),
        cmocka_unit_test_setup_teardown(heads_are_distributed, setup, teardown),
        cmocka_unit_test_setup_teardown(losses_of_answers_are_gathered, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, setup, teardown),
        cmocka_unit_test(positions_are_distributed_once),
        cmocka_unit_test(packed_documents_are_balanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
