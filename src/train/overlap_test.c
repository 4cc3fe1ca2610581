// Overlap of GEMMs with collectives: keys and values of a ring, and the row chunks that tensor
// parallelism sums, scatters and gathers. The verifier proves that no action reads too early; these
// tests check which transfers run at the same time as which GEMMs.
#include "assemble/prove.h"
#include "fixtures/train/test_job.h"

typedef struct made {
    arena *a;
    run_config r;
    decoder_spec spec;
    assemble_plans plans;
} made;

static void make(const char *const *list, int count, int64_t rank, made *m)
{
    config *c = NULL;
    assert_ok(arena_create("test", 0, &m->a));
    assert_ok(run_config_load(host_real(), m->a, NULL, list, count, &m->r, &c));
    assert_ok(model_spec_from_config(host_real(), m->a, &m->r, &m->spec));
    const assemble_options options = {
        .threads = 1, .device = "cpu", .backend = "cpu", .mesh = run_config_mesh(&m->r, rank)};
    assert_ok(assemble_rank(m->a, &m->r, &m->spec, &options, &m->plans));
}

// Verifies the plans of all ranks together, as before a run.
static void prove(const made *m)
{
    const assemble_options options = {.threads = 1, .device = "cpu", .backend = "cpu"};
    assemble_proved proved = {0};
    const status st = assemble_prove(host_real(), m->a, &m->r, &m->spec, &options, &proved);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

static const plan_comm *comm_of(const plan *p, int64_t action)
{
    const plan_action *a = &p->actions[action];
    return a->kind == ACTION_COMMUNICATE ? &p->comms[a->comm] : NULL;
}

static bool waits_for(const plan *p, int64_t action, int64_t on)
{
    const plan_action *a = &p->actions[action];
    for (int32_t i = 0; i < a->waits_count; i++) {
        if (p->waits[a->waits_begin + i] == on) return true;
    }
    return false;
}

static int64_t next_compute(const plan *p, int64_t from)
{
    while (p->actions[from].stream != STREAM_COMPUTE) from++;
    return from;
}

static op_code first_code(const plan *p, int64_t action)
{
    const plan_action *a = &p->actions[action];
    return p->bindings[a->binding].program->lists[a->list].nodes[a->ops_begin].code;
}

// Every shift of the ring overlaps with attention, except the one that returns gradients to their
// owner. The attention does not wait for the shifts that it overlaps with.
static void ring_shifts_overlap_attention(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        char cp[32];
        const char *const list[] = {"data.train=x",       cp,
                                    "layout.cp_ring=yes", "train.global_batch=2",
                                    "train.seq=64",       "model.layers=2",
                                    "model.dim=32",       "model.heads=4",
                                    "model.vocab=67",     "model.ffn_dim=48"};
        (void)snprintf(cp, sizeof(cp), "layout.cp=%d", ranks);
        made m;
        make(list, COUNT_OF(list), 0, &m);
        const plan *p = m.plans.all[0];
        int overlapped = 0, between = 0;
        for (int64_t i = 0; i < p->action_count; i++) {
            const plan_comm *c = comm_of(p, i);
            if (c == NULL || (c->op != COLLECTIVE_SEND && c->op != COLLECTIVE_RECEIVE)) continue;
            between += p->run->groups[c->group].use == GROUP_INLINE;
            if (p->run->groups[c->group].use != GROUP_RING) continue;
            const int64_t gemm = next_compute(p, i), after = next_compute(p, gemm + 1);
            const op_code code = first_code(p, gemm);
            assert_true(code == OP_ATTENTION || code == OP_ATTENTION_BWD);
            assert_int_equal(p->actions[gemm].ops_count, 1);
            assert_false(waits_for(p, gemm, i));
            // The next compute action waits for the last shift of the stream.
            int64_t last = i;
            for (int64_t k = i; k < gemm; k++) {
                if (p->actions[k].stream == p->actions[i].stream) last = k;
            }
            assert_true(waits_for(p, after, last));
            overlapped++;
        }
        // Each layer sends and receives keys in forward and backward, and gradients of keys in
        // backward.
        assert_int_equal(overlapped, 2 * 2 * 3 * (ranks - 1));
        assert_int_equal(between, 2 * 2);
        prove(&m);
        arena_destroy(m.a);
    }
}

// The rows of a GEMM are gathered or scattered in `pieces`, of one sequence or of several. Every
// gather but the first and every scatter but the last overlaps with a GEMM.
static void row_chunks_overlap_gemms(void **state)
{
    (void)state;
    static const struct {
        const char *micro_batch;
        int pieces;
    } runs[] = {{"train.micro_batch=1", 4}, {"train.micro_batch=2", 2}, {"train.micro_batch=4", 4}};
    for (int i = 0; i < COUNT_OF(runs); i++) {
        const char *const list[] = {"data.train=x",         "layout.tp=2",      "layout.sp=yes",
                                    "train.global_batch=4", "train.seq=1024",   "model.layers=1",
                                    "model.dim=1024",       "model.heads=4",    "model.vocab=67",
                                    "model.ffn_dim=48",     runs[i].micro_batch};
        made m;
        make(list, COUNT_OF(list), 0, &m);
        const plan *p = m.plans.all[0];
        assert_int_equal(p->cut_pieces, i == 0 ? 4 : 1);
        int gathers = 0, scatters = 0;
        for (int64_t at = 0; at < p->action_count; at++) {
            const plan_comm *c = comm_of(p, at);
            if (c == NULL || p->actions[at].stream == STREAM_COMPUTE || p->actions[at].layer < 0)
                continue;
            const int64_t gemm = next_compute(p, at);
            const op_code code = first_code(p, gemm);
            gathers += c->op == COLLECTIVE_ALL_GATHER;
            scatters += c->op == COLLECTIVE_REDUCE_SCATTER;
            if (c->op == COLLECTIVE_ALL_GATHER && !c->more) continue;
            if (c->op == COLLECTIVE_REDUCE_SCATTER && !c->more) continue;
            assert_true(code == OP_MATMUL || code == OP_MATMUL_DX);
            assert_true(c->op == COLLECTIVE_ALL_GATHER || !waits_for(p, gemm, at));
        }
        // Each layer and micro-batch gathers before qkv and gate_up and scatters after out and
        // down; backward gathers where forward scatters, and the reverse.
        const int microbatches = (int)(p->own_sequences / p->micro_batch);
        assert_int_equal(gathers, microbatches * runs[i].pieces * 4);
        assert_int_equal(scatters, microbatches * runs[i].pieces * 4);
        prove(&m);
        arena_destroy(m.a);
    }
}

// Rows and their scales overlap with the shared experts on their way to experts, and gradients of
// rows with theirs; what comes back is awaited at once.
static void rows_overlap_shared_experts(void **state)
{
    (void)state;
    const char *const list[] = {"data.train=x",        "model.preset=moe-tiny",  "model.layers=2",
                                "train.seq=32",        "train.global_batch=4",   "model.vocab=67",
                                "train.micro_batch=1", "model.shared_experts=1", "layout.dp=2",
                                "layout.ep=2"};
    made m;
    make(list, COUNT_OF(list), 0, &m);
    const plan *p = m.plans.all[0];
    int overlapped = 0, between = 0;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_comm *c = comm_of(p, i);
        if (c == NULL || c->op != COLLECTIVE_ALL_TO_ALLV) continue;
        between += p->run->groups[c->group].use == GROUP_INLINE;
        if (p->actions[i].stream == STREAM_COMPUTE) continue;
        const int64_t shared = next_compute(p, i), after = next_compute(p, shared + 1);
        const op_code code = first_code(p, shared);
        assert_true(code == OP_MATMUL || code == OP_MATMUL_DX);
        assert_false(waits_for(p, shared, i));
        int64_t last = i;
        for (int64_t k = i; k < shared; k++) {
            if (p->actions[k].stream == p->actions[i].stream) last = k;
        }
        assert_true(waits_for(p, after, last));
        overlapped++;
    }
    assert_int_equal(overlapped, 2 * 2 * 3); // layers, micro-batches; three in each
    assert_int_equal(between, 2 * 2 * 3);
    prove(&m);
    arena_destroy(m.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_shifts_overlap_attention),
        cmocka_unit_test(row_chunks_overlap_gemms),
        cmocka_unit_test(rows_overlap_shared_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
