// Tests the coordinator and the members in virtual time. Every test runs with several seeds, which
// pick orders, delays and splits.
#include "fixtures/control/job_fixture.inc"

enum { SEEDS = 12 };

static control_key *key, *other_key;

static int setup(void **state)
{
    (void)state;
    key = job_key(1);
    other_key = job_key(2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    control_key_destroy(key);
    control_key_destroy(other_key);
    return 0;
}

static void start(job *j, int ranks, uint64_t seed)
{
    job_init(j, ranks, key, seed);
    job_start_coordinator(j);
    for (int r = 0; r < ranks; r++) {
        const control_member_config c = job_config(j, r);
        (void)job_add(j, &c);
    }
    for (int i = 0; i < 4000 && !job_is_in(j, CONTROL_RUNNING); i++) job_step(j);
    assert_true(job_is_in(j, CONTROL_RUNNING));
}

static void swap_all(job *j, int64_t bytes, uint8_t salt)
{
    uint8_t mine[256];
    for (int i = 0; i < j->count; i++) {
        for (int64_t k = 0; k < bytes; k++) mine[k] = (uint8_t)(salt + i * 31 + k);
        const control_group everyone = {.place = i, .count = j->count};
        assert_int_equal(control_member_swap(j->r[i].m, &everyone, mine, bytes), ST_OK);
    }
    for (int i = 0; i < j->count; i++) {
        status st = ST_INTERNAL;
        const uint8_t *all = NULL;
        for (int n = 0; n < 20000 && !control_member_swapped(j->r[i].m, &st, &all); n++)
            job_step(j);
        assert_true(control_member_swapped(j->r[i].m, &st, &all));
        assert_int_equal(st, ST_OK);
        for (int q = 0; q < j->count; q++) {
            for (int64_t k = 0; k < bytes; k++) {
                assert_int_equal(all[q * bytes + k], (uint8_t)(salt + q * 31 + k));
            }
        }
    }
}

static void test_join_swap_leave(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 9};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        job j;
        start(&j, sizes[seed % 4], seed);
        for (int r = 0; r < j.count; r++) {
            assert_int_equal(control_member_peer(j.r[0].m, r)->pid, 100 + r);
            assert_int_equal(control_member_peer(j.r[0].m, r)->machine, 1);
        }
        swap_all(&j, 200, 1);
        swap_all(&j, 0, 2);
        swap_all(&j, 1, 3);
        for (int r = 0; r < j.count; r++) {
            control_member_leave(j.r[r].m);
            job_run(&j, 300 * MS);
            assert_int_equal(job_is_in(&j, CONTROL_LEFT), r == j.count - 1);
        }
        assert_true(control_coordinator_is_done(j.coordinator));
        for (int r = 0; r < j.count; r++) assert_int_equal(j.r[r].notice_count, 0);
        job_deinit(&j);
    }
}

// Ranks 0, 2, 4 and 1, 3 at the same time, again and again, at each rank's own pace; rank 5 takes
// no part.
static void test_groups_swap(void **state)
{
    (void)state;
    enum { RANKS = 6, MEMBERS = 5, ROUNDS = 4 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        job j;
        int rounds[MEMBERS] = {0};
        bool is_begun[MEMBERS] = {false};
        start(&j, RANKS, seed);
        for (int n = 0, done = 0; done < MEMBERS; n++) {
            assert_true(n < 20000);
            job_step(&j);
            done = 0;
            for (int r = 0; r < MEMBERS; r++) {
                status st = ST_OK;
                const uint8_t *all = NULL;
                const uint8_t mine[2] = {(uint8_t)r, (uint8_t)rounds[r]};
                const int count = r % 2 == 0 ? 3 : 2;
                const control_group g = {
                    .key = (uint64_t)(70 + r % 2), .place = r / 2, .count = count};
                done += rounds[r] == ROUNDS;
                if (rounds[r] == ROUNDS) continue;
                if (!is_begun[r]) {
                    assert_int_equal(control_member_swap(j.r[r].m, &g, mine, 2), ST_OK);
                    is_begun[r] = true;
                }
                if (!control_member_swapped(j.r[r].m, &st, &all)) continue;
                assert_int_equal(st, ST_OK);
                for (int k = 0; k < count; k++) {
                    assert_int_equal(all[2 * k], 2 * k + r % 2);
                    assert_int_equal(all[2 * k + 1], rounds[r]);
                }
                is_begun[r] = false;
                rounds[r]++;
            }
        }
        swap_all(&j, 20, 4);
        job_deinit(&j);
    }
}

// A member is lost: the others' swap ends, and says so.
static void test_group_swap_loses_a_member(void **state)
{
    (void)state;
    job j;
    start(&j, 4, 2);
    const uint8_t mine[8] = {0};
    for (int r = 0; r < 2; r++) {
        const control_group g = {.key = 5, .place = r, .count = 3};
        assert_int_equal(control_member_swap(j.r[r].m, &g, mine, 8), ST_OK);
    }
    control_member_fail(j.r[2].m, ST_DEVICE, "no way out");
    job_run(&j, 4000 * MS);
    for (int r = 0; r < 2; r++) {
        status st = ST_OK;
        const uint8_t *all;
        assert_true(control_member_swapped(j.r[r].m, &st, &all));
        assert_int_not_equal(st, ST_OK);
    }
    job_deinit(&j);
}

static void test_swap_differs(void **state)
{
    (void)state;
    job j;
    start(&j, 3, 1);
    const uint8_t mine[8] = {0};
    for (int r = 0; r < 3; r++) {
        const control_group everyone = {.place = r, .count = 3};
        assert_int_equal(control_member_swap(j.r[r].m, &everyone, mine, r == 2 ? 7 : 8), ST_OK);
    }
    job_run(&j, 500 * MS);
    for (int r = 0; r < 3; r++) {
        status st = ST_OK;
        const uint8_t *all;
        const char *said;
        assert_true(control_member_swapped(j.r[r].m, &st, &all));
        assert_int_equal(st, ST_DIVERGED);
        assert_int_equal(control_member_error(j.r[r].m, &said), ST_DIVERGED);
        assert_non_null(strstr(said, "ranks disagree in a swap"));
        assert_non_null(strstr(said, "7 bytes"));
    }
    job_deinit(&j);
}

// A rank with a wrong key is refused within its handshake; the other ranks keep waiting, and the
// correct rank is admitted.
static void test_wrong_key(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        job j;
        const char *said;
        job_init(&j, 3, key, seed);
        job_start_coordinator(&j);
        control_member_config c = job_config(&j, 0);
        (void)job_add(&j, &c);
        c = job_config(&j, 1);
        (void)job_add(&j, &c);
        c = job_config(&j, 2);
        if (seed % 3 == 0) c.key = other_key;
        if (seed % 3 == 1) c.job++;
        if (seed % 3 == 2) c.epoch--;
        const int bad = job_add(&j, &c);
        job_run(&j, 1000 * MS);
        assert_int_equal(control_member_error(j.r[bad].m, &said), ST_SECURITY);
        assert_non_null(strstr(said, "rank 2 (n2) was refused: its key"));
        assert_false(control_member_may_retry(j.r[bad].m));
        assert_true(job_said(&j, "rank 2 (n2, process 102) was refused"));
        for (int r = 0; r < 2; r++)
            assert_int_equal(control_member_state(j.r[r].m), CONTROL_WAITING);
        c = job_config(&j, 2);
        (void)job_add(&j, &c);
        job_run(&j, 1000 * MS);
        for (int r = 0; r < 2; r++)
            assert_int_equal(control_member_state(j.r[r].m), CONTROL_RUNNING);
        job_deinit(&j);
    }
}

// If no process joins as a refused rank, the others do not wait for the whole limit of joining.
static void test_wrong_key_ends_the_job(void **state)
{
    (void)state;
    job j;
    const char *said;
    job_init(&j, 2, key, 11);
    job_start_coordinator(&j);
    control_member_config c = job_config(&j, 0);
    (void)job_add(&j, &c);
    c = job_config(&j, 1);
    c.key = other_key;
    const int bad = job_add(&j, &c);
    job_run(&j, 3000 * MS);
    assert_int_equal(control_member_error(j.r[bad].m, &said), ST_SECURITY);
    assert_int_equal(control_member_error(j.r[0].m, &said), ST_SECURITY);
    assert_non_null(strstr(said, "rank 1 (n1, process 101) was refused, because its key is not"));
    assert_true(control_coordinator_is_done(j.coordinator));
    job_deinit(&j);
}

// A byte of one frame of the handshake is changed on the way: both sides say so and end.
static void test_changed_handshake(void **state)
{
    (void)state;
    enum { FRAMES = 3, PLACES = 6 };
    // The digest, the nonce, the process, the host, the MAC, and the magic number.
    static const int places[PLACES] = {40, 100, 130, 152, 250, 2};
    for (int i = 0; i < FRAMES * PLACES; i++) {
        const int frame = i % FRAMES, place = places[i / FRAMES];
        if (frame == 0 && place == 2) continue; // it claims no rank; the coordinator waits on
        uint8_t bytes[CONTROL_HELLO_BYTES];
        const char *said;
        job j;
        job_init(&j, 2, key, 12);
        job_start_coordinator(&j);
        control_member_config c = job_config(&j, 1);
        control_member *m = NULL;
        assert_int_equal(control_member_create(&c, j.now, &m), ST_OK);
        const int line = control_coordinator_accept(j.coordinator, j.now);
        const control_event opened = {.kind = CONTROL_OPENED};
        control_member_handle(m, &opened, j.now);
        for (int k = 0; k < 6; k++) { // the three frames, and what the answer to the changed one is
            const bool to_rank = k % 2 == 1;
            const control_span s = to_rank ? control_coordinator_output(j.coordinator, line)
                                           : control_member_output(m);
            if (s.bytes < CONTROL_HELLO_BYTES) continue;
            memcpy(bytes, s.data, sizeof(bytes));
            if (k == frame) bytes[place] ^= 1;
            const control_event e = {.kind = CONTROL_BYTES,
                                     .connection = line,
                                     .bytes = bytes,
                                     .count = CONTROL_HELLO_BYTES};
            if (to_rank) {
                control_coordinator_sent(j.coordinator, line, CONTROL_HELLO_BYTES);
                control_member_handle(m, &e, j.now);
            } else {
                control_member_sent(m, CONTROL_HELLO_BYTES);
                control_coordinator_handle(j.coordinator, &e, j.now);
            }
        }
        assert_int_equal(control_member_error(m, &said), ST_SECURITY);
        assert_false(control_member_may_retry(m));
        control_member_destroy(m);
        job_run(&j, 3000 * MS);
        assert_true(control_coordinator_is_done(j.coordinator));
        assert_true(job_said(&j, "rank 1"));
        job_deinit(&j);
    }
}

// A coordinator without the key cannot convince a rank that it holds it.
static void test_false_coordinator(void **state)
{
    (void)state;
    job j;
    const char *said;
    job_init(&j, 1, other_key, 5);
    job_start_coordinator(&j);
    control_member_config c = job_config(&j, 0);
    c.key = key;
    (void)job_add(&j, &c);
    job_run(&j, 500 * MS);
    assert_int_equal(control_member_error(j.r[0].m, &said), ST_SECURITY);
    job_deinit(&j);
}

static void test_second_claimant(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        job j;
        job_init(&j, 2, key, seed);
        job_start_coordinator(&j);
        const control_member_config c = job_config(&j, 1);
        (void)job_add(&j, &c);
        // Otherwise both race, and one of them gets the rank.
        if (seed % 2 == 0) job_run(&j, 500 * MS);
        control_member_config again = c;
        again.self.pid = 777;
        (void)job_add(&j, &again);
        job_run(&j, 1500 * MS);
        int waiting = 0;
        for (int i = 0; i < 2; i++) {
            waiting += control_member_state(j.r[i].m) == CONTROL_WAITING;
        }
        assert_int_equal(waiting, 1);
        if (seed % 2 == 0) assert_int_equal(control_member_state(j.r[0].m), CONTROL_WAITING);
        assert_true(job_said(&j, "a second process that claims rank 1"));
        job_deinit(&j);
    }
}

// A rank that lost its connection reconnects while the coordinator still holds the old one. It is
// the same process, so it takes its own slot again.
static void test_comes_again(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, key, 6);
    job_start_coordinator(&j);
    control_member_config c = job_config(&j, 1);
    const int first = job_add(&j, &c);
    job_run(&j, 500 * MS);
    assert_int_equal(control_member_state(j.r[first].m), CONTROL_WAITING);
    j.r[first].is_stopped = true; // the coordinator does not see its end
    const int again = job_add(&j, &c);
    job_run(&j, 500 * MS);
    assert_int_equal(control_member_state(j.r[again].m), CONTROL_WAITING);
    c = job_config(&j, 0);
    const int other = job_add(&j, &c);
    job_run(&j, 500 * MS);
    assert_int_equal(control_member_state(j.r[again].m), CONTROL_RUNNING);
    assert_int_equal(control_member_state(j.r[other].m), CONTROL_RUNNING);
    assert_false(job_said(&j, "a second process"));
    job_deinit(&j);
}

static void test_wrong_world(void **state)
{
    (void)state;
    job j;
    const char *said;
    job_init(&j, 4, key, 3);
    job_start_coordinator(&j);
    control_member_config c = job_config(&j, 1);
    c.ranks = 2;
    (void)job_add(&j, &c);
    job_run(&j, 500 * MS);
    assert_int_equal(control_member_error(j.r[0].m, &said), ST_REFUSED);
    assert_non_null(strstr(said, "a job of 2 ranks, the others for 4"));
    job_deinit(&j);
}

static void test_config_differs(void **state)
{
    (void)state;
    static const control_fact usual[] = {{CONTROL_BUILD, "version", "0.1.0"},
                                         {CONTROL_CONFIG, "layout.tp", "4"},
                                         {CONTROL_CONFIG, "train.steps", "10"}};
    static const control_fact odd[] = {{CONTROL_BUILD, "version", "0.1.0"},
                                       {CONTROL_CONFIG, "layout.tp", "2"},
                                       {CONTROL_CONFIG, "train.steps", "10"}};
    for (int bad = 0; bad < 8; bad += 3) {
        job j;
        job_init(&j, 8, key, (uint64_t)bad);
        job_start_coordinator(&j);
        for (int r = 0; r < 8; r++) {
            control_member_config c = job_config(&j, r);
            c.facts = r == bad ? odd : usual;
            c.fact_count = 3;
            (void)job_add(&j, &c);
        }
        job_run(&j, 1500 * MS);
        char wanted[128];
        assert_true(
            snprintf(wanted, sizeof(wanted),
                     "rank %d (n%d) was refused: layout.tp is 2 there and 4 on the other 7 ranks; "
                     "start all ranks with the same run.yaml",
                     bad, bad) > 0);
        for (int r = 0; r < 8; r++) {
            const char *said;
            assert_int_equal(control_member_error(j.r[r].m, &said), ST_REFUSED);
            assert_string_equal(said, wanted);
        }
        assert_true(job_said(&j, wanted));
        job_deinit(&j);
    }
}

static void test_join_too_late(void **state)
{
    (void)state;
    job j;
    const char *said;
    job_init(&j, 4, key, 1);
    j.coordinator_config.join_ns = 9000 * MS;
    job_start_coordinator(&j);
    for (int r = 0; r < 4; r += 3) {
        const control_member_config c = job_config(&j, r);
        (void)job_add(&j, &c);
    }
    job_run(&j, 6000 * MS);
    assert_int_equal(control_member_error(j.r[0].m, &said), ST_OK);
    assert_true(j.notice_count > 0);
    assert_string_equal(j.notices[j.notice_count - 1].text,
                        "ranks 1, 2 must still join within 9 s; 2 of 4 have joined");
    job_run(&j, 4000 * MS);
    assert_int_equal(control_member_error(j.r[0].m, &said), ST_TIMEOUT);
    assert_string_equal(said, "ranks 1, 2 did not join within 9 s; 2 of 4 have joined");
    job_deinit(&j);
}

// Sockets that send nothing: the coordinator holds at most 64, each for 2 s, and a rank can still
// join.
static void test_half_open(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, key, 9);
    job_start_coordinator(&j);
    int held = 0;
    for (int i = 0; i < 200; i++) {
        const int line = control_coordinator_accept(j.coordinator, j.now);
        held += line >= 0;
        assert_true(control_coordinator_pending(j.coordinator) <= CONTROL_PENDING_MAX);
    }
    assert_true(held >= CONTROL_PENDING_MAX);
    for (int r = 0; r < 2; r++) {
        const control_member_config c = job_config(&j, r);
        const int i = job_add(&j, &c);
        j.r[i].retries = true;
    }
    for (int i = 0; i < 100; i++) { // meanwhile the flood goes on
        for (int k = 0; k < 5; k++) (void)control_coordinator_accept(j.coordinator, j.now);
        for (int c = 0; c < control_coordinator_connections(j.coordinator); c++) {
            bool is_ours = false;
            for (int r = 0; r < 2; r++) is_ours = is_ours || j.r[r].line == c;
            const control_event closed = {.kind = CONTROL_CLOSED, .connection = c};
            if (!is_ours && control_coordinator_drops(j.coordinator, c))
                control_coordinator_handle(j.coordinator, &closed, j.now);
        }
        job_step(&j);
    }
    job_run(&j, 3000 * MS);
    assert_true(job_is_in(&j, CONTROL_RUNNING));
    assert_int_equal(control_coordinator_pending(j.coordinator), 0);
    job_deinit(&j);
}

static void check_verdict(const job *j, int rank, control_verdict v)
{
    for (int i = 0; i < j->count; i++) {
        if (i == rank) continue;
        const control_notice *n = job_verdict(&j->r[i], rank);
        assert_non_null(n);
        assert_int_equal(n == NULL ? CONTROL_FINE : n->verdict, v);
        for (int q = 0; q < j->count; q++) { // no other rank is suspected
            if (q != rank) assert_null(job_verdict(&j->r[i], q));
        }
    }
}

static void test_killed(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        // The end is seen through a pidfd, or through the end of the connection.
        for (int seen = 0; seen < 2; seen++) {
            job j;
            start(&j, 4, (uint64_t)rank);
            job_run(&j, 700 * MS);
            job_kill(&j, rank, seen == 1);
            job_run(&j, 250 * MS);
            check_verdict(&j, rank, CONTROL_DEAD);
            job_deinit(&j);
        }
    }
}

static void test_stopped(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        job j;
        start(&j, 4, (uint64_t)rank);
        job_run(&j, 500 * MS);
        j.r[rank].is_stopped = true;
        job_run(&j, 500 * MS); // a stall of half a second leads to no verdict
        j.r[rank].is_stopped = false;
        job_run(&j, 1000 * MS);
        for (int i = 0; i < 4; i++) assert_int_equal(j.r[i].notice_count, 0);
        j.r[rank].is_stopped = true;
        job_run(&j, 1100 * MS);
        check_verdict(&j, rank, CONTROL_STOPPED);
        // It wakes, learns that it was fenced, and can do nothing more.
        j.r[rank].is_stopped = false;
        job_run(&j, 500 * MS);
        const char *said;
        assert_int_equal(control_member_error(j.r[rank].m, &said), ST_PEER_LOST);
        for (int i = 0; i < 4; i++) {
            if (i != rank) assert_int_equal(control_member_state(j.r[i].m), CONTROL_RUNNING);
        }
        job_deinit(&j);
    }
}

// The kernel is asked before a silent rank of the coordinator's machine, or a silent coordinator,
// is suspected.
static int64_t stopped_pid;

static bool runs(const control_peer *peer)
{
    return peer->pid != stopped_pid;
}

static void test_starved(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        job j;
        job_init(&j, 3, key, 6);
        j.coordinator_config.rank = 0;
        j.coordinator_config.self.machine = 1;
        j.coordinator_config.runs = runs;
        job_start_coordinator(&j);
        stopped_pid = 0;
        for (int r = 0; r < 3; r++) {
            control_member_config c = job_config(&j, r);
            c.runs = runs;
            (void)job_add(&j, &c);
        }
        job_run(&j, 1500 * MS);
        assert_true(job_is_in(&j, CONTROL_RUNNING));
        j.r[rank].is_stopped = true;
        j.is_coordinator_stopped = rank == 0;
        job_run(&j, 5000 * MS);
        for (int i = 0; i < 3; i++) assert_int_equal(j.r[i].notice_count, 0);
        stopped_pid = 100 + rank; // now the kernel says so, too
        job_run(&j, 1100 * MS);
        check_verdict(&j, rank, CONTROL_STOPPED);
        job_deinit(&j);
    }
}

// The coordinator runs in rank 0's process; each of the other ranks decides by itself whether it is
// alive.
static void test_coordinator_stopped_or_killed(void **state)
{
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        job j;
        job_init(&j, 3, key, 4);
        j.coordinator_config.rank = 0;
        job_start_coordinator(&j);
        for (int r = 0; r < 3; r++) {
            const control_member_config c = job_config(&j, r);
            (void)job_add(&j, &c);
        }
        job_run(&j, 1500 * MS);
        assert_true(job_is_in(&j, CONTROL_RUNNING));
        j.is_coordinator_stopped = true;
        if (killed) {
            job_kill(&j, 0, true);
        } else {
            j.r[0].is_stopped = true;
        }
        job_run(&j, 1100 * MS);
        check_verdict(&j, 0, killed ? CONTROL_DEAD : CONTROL_STOPPED);
        job_deinit(&j);
    }
}

// A member that did not run for a while suspects no rank: the messages that it missed lie in its
// socket.
static void test_late_monitor(void **state)
{
    (void)state;
    job j;
    start(&j, 3, 8);
    job_run(&j, 500 * MS);
    j.now += 5000 * MS; // the whole machine was frozen
    job_run(&j, 2000 * MS);
    for (int i = 0; i < 3; i++) assert_int_equal(j.r[i].notice_count, 0);
    assert_true(job_is_in(&j, CONTROL_RUNNING));
    job_deinit(&j);
}

// Ranks that were frozen together with the coordinator had advanced just before. Their first
// messages, sent before the freeze or on waking, show no progress since then.
static void test_late_monitor_of_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        job j;
        start(&j, 3, seed);
        for (int k = 1; k <= 20; k++) {
            const control_report at = {
                .step = k, .counter = (uint64_t)k, .step_ns = 10 * MS, .own_ns = 10 * MS};
            for (int i = 0; i < 3; i++) control_member_report(j.r[i].m, &at);
            job_run(&j, 150 * MS);
            if (k == 10) {
                j.now += 5000 * MS;
                job_run(&j, 300 * MS);
            }
        }
        for (int i = 0; i < 3; i++) assert_int_equal(j.r[i].notice_count, 0);
        job_deinit(&j);
    }
}

static void test_failed_says_why(void **state)
{
    (void)state;
    job j;
    start(&j, 3, 2);
    control_member_fail(j.r[1].m, ST_DATA, "web-0031.bin ends early");
    job_run(&j, 200 * MS);
    job_kill(&j, 1, true);
    job_run(&j, 300 * MS);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(j.r[i].notices[0].kind, CONTROL_NOTE_FAILED);
        assert_int_equal(j.r[i].notices[0].code, ST_DATA);
        assert_string_equal(j.r[i].notices[0].text, "rank 1 (n1) failed: web-0031.bin ends early");
        assert_int_equal(j.r[i].notices[1].verdict, CONTROL_DEAD);
        assert_int_equal(j.r[i].notice_count, 2);
    }
    job_deinit(&j);
}

// Ranks step at their own pace; whatever the delays, all stop before the same step.
static void test_agreement(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        job j;
        start(&j, 4, seed);
        int64_t step[4] = {0}, stop[4] = {0}, switched[4] = {0};
        int asked = 0;
        for (int n = 0; n < 3000; n++) {
            job_step(&j);
            if (n == 50 || (n > 50 && asked < 3 && job_draw(&j, 40) == 0)) {
                // Several ranks may get the signal, and a request to switch comes in between.
                const int who = (int)job_draw(&j, 4);
                if (asked == 1) {
                    control_member_request(j.r[who].m, CONTROL_AGREE_SWITCH, 77);
                } else {
                    control_member_request(j.r[who].m, CONTROL_AGREE_STOP, 0);
                }
                asked++;
            }
            // In lockstep, as collectives keep ranks: at most one step apart.
            int64_t slowest = INT64_MAX;
            for (int r = 0; r < 4; r++) slowest = min_i64(slowest, step[r]);
            const int r = (int)job_draw(&j, 4);
            control_decision due[CONTROL_AGREEMENTS];
            if (stop[r] != 0 || step[r] > slowest) continue;
            if (!control_member_step(j.r[r].m, step[r] + 1, due)) continue;
            step[r]++;
            if (due[CONTROL_AGREE_SWITCH].is_due) {
                assert_int_equal(due[CONTROL_AGREE_SWITCH].argument, 77);
                switched[r] = step[r];
            }
            if (due[CONTROL_AGREE_STOP].is_due) stop[r] = step[r];
        }
        assert_true(stop[0] > 0);
        for (int r = 1; r < 4; r++) {
            assert_int_equal(stop[r], stop[0]);
            assert_int_equal(switched[r], switched[0]);
        }
        job_deinit(&j);
    }
}

// A bit flips anywhere, at any time. The only verdict is that this connection was lost, and no
// received value differs from the sent one.
static void test_flipped_bits(void **state)
{
    (void)state;
    int64_t length = 0;
    {
        job j;
        start(&j, 2, 1);
        swap_all(&j, 50, 9);
        length = j.passed;
        job_deinit(&j);
    }
    for (int64_t at = 0; at < length; at += 7) {
        job j;
        job_init(&j, 2, key, 1);
        j.flip_at = at;
        j.flip_bit = (int)(at % 8);
        job_start_coordinator(&j);
        for (int r = 0; r < 2; r++) {
            const control_member_config c = job_config(&j, r);
            (void)job_add(&j, &c);
        }
        job_run(&j, 400 * MS);
        uint8_t mine[50];
        bool is_swapping = true;
        for (int r = 0; r < 2; r++) {
            const control_group both = {.place = r, .count = 2};
            memset(mine, r + 1, sizeof(mine));
            is_swapping = is_swapping && control_member_state(j.r[r].m) == CONTROL_RUNNING &&
                          control_member_swap(j.r[r].m, &both, mine, sizeof(mine)) == ST_OK;
        }
        job_run(&j, 400 * MS);
        for (int r = 0; is_swapping && r < 2; r++) {
            status st = ST_OK;
            const uint8_t *all = NULL;
            if (!control_member_swapped(j.r[r].m, &st, &all) || st != ST_OK) continue;
            assert_int_equal(all[0], 1);
            assert_int_equal(all[99], 2);
        }
        job_deinit(&j);
    }
}

// A rank's bytes, sent to a coordinator again, are refused: the proof belongs to another nonce.
static void test_replay(void **state)
{
    (void)state;
    job j;
    uint8_t recorded[2048];
    int64_t count = 0;
    job_init(&j, 1, key, 3);
    j.delay_percent = 0;
    job_start_coordinator(&j);
    const control_member_config c = job_config(&j, 0);
    (void)job_add(&j, &c);
    for (int i = 0; i < 400; i++) {
        const control_span s = control_member_output(j.r[0].m);
        const int64_t piece = min_i64(s.bytes, (int64_t)sizeof(recorded) - count);
        if (piece > 0) memcpy(recorded + count, s.data, (size_t)piece);
        count += piece;
        job_step(&j);
    }
    assert_true(job_is_in(&j, CONTROL_RUNNING));
    assert_true(count > 2 * CONTROL_HELLO_BYTES);
    job_deinit(&j);

    job_init(&j, 1, key, 4);
    job_start_coordinator(&j);
    const int line = control_coordinator_accept(j.coordinator, j.now);
    const control_event e = {
        .kind = CONTROL_BYTES, .connection = line, .bytes = recorded, .count = count};
    control_coordinator_handle(j.coordinator, &e, j.now);
    assert_true(control_coordinator_drops(j.coordinator, line));
    control_notice n;
    assert_true(control_coordinator_notice(j.coordinator, &n));
    assert_int_equal(n.code, ST_SECURITY);
    assert_non_null(strstr(n.text, "could not prove it"));
    job_deinit(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_swap_leave),
        cmocka_unit_test(test_swap_differs),
        cmocka_unit_test(test_groups_swap),
        cmocka_unit_test(test_group_swap_loses_a_member),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_wrong_key_ends_the_job),
        cmocka_unit_test(test_changed_handshake),
        cmocka_unit_test(test_false_coordinator),
        cmocka_unit_test(test_second_claimant),
        cmocka_unit_test(test_comes_again),
        cmocka_unit_test(test_wrong_world),
        cmocka_unit_test(test_config_differs),
        cmocka_unit_test(test_join_too_late),
        cmocka_unit_test(test_half_open),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_starved),
        cmocka_unit_test(test_coordinator_stopped_or_killed),
        cmocka_unit_test(test_late_monitor),
        cmocka_unit_test(test_late_monitor_of_steps),
        cmocka_unit_test(test_failed_says_why),
        cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_replay),
    };
    return cmocka_run_group_tests_name("control/machine", tests, setup, teardown);
}
