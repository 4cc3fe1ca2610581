// A day of losses in virtual time: five hosts with two processes each train eight ranks, and every
// 10 to 20 seconds something is lost. SOAK_HOURS: virtual hours, of kills and then of all faults
// (0.05; a day at night).
//
//   real      coordinators and members of each epoch (machine.h), and the launchers' majority
//             (quorum.h)
//   modelled  processes, sockets and clocks; the launcher's rules of docs/architecture/control.md;
//             and the training: a rank has a piece of the state that no other one has, sends a
//             gradient to all, and after each step a copy of its piece to a rank of the next host
//
// Every value of a step is compared with that of a job to which nothing happened. Safety, at any
// time: an index has one record, no rank is accused that has no fault, at most one step is made
// again, nothing of an earlier epoch enters a later one, and no state is lost. Progress: steps go
// on after each fault. After kills alone 98.5% of the time is in steps that count.
#include "fixtures/control/soak_job.inc"

// ---- launchers ----------------------------------------------------------------------------------

static void entry_check(soak *s, int h)
{
    const control_quorum *q = &s->launchers[h].q;
    control_quorum_check(q);
    const uint64_t index = q->agreed.index;
    if (index == 0) return;
    assert_true(index < RECORDS_MAX && q->agreed.value < (uint64_t)s->record_count);
    if (s->value_of[index] == 0) s->value_of[index] = q->agreed.value;
    assert_true(s->value_of[index] == q->agreed.value);
}

// Sends what the machine of a launcher has to say, and admits it if a record names it.
static void machine_follow(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    entry_check(s, h);
    if (l->q.is_back && l->q.agreed.index > 0 && newest(s, h)->incarnation[h] == l->incarnation) {
        control_quorum_admit(&l->q);
    }
    for (int i = 0; i < l->q.out_count; i++) {
        const control_quorum_message *m = &l->q.out[i];
        if (!hears(s, h, m->to)) continue;
        assert_true(s->wire_count < WIRES_MAX);
        s->wires[s->wire_count++] =
            (wire_message){*m, l->incarnation, s->now + (1 + draw(s, 3)) * TURN_MS * MS};
    }
    l->q.out_count = 0;
}

static void wires_run(soak *s)
{
    int kept = 0;
    const int count = s->wire_count;
    for (int i = 0; i < count; i++) {
        const wire_message w = s->wires[i];
        launcher *to = &s->launchers[w.m.to];
        if (w.at > s->now) {
            s->wires[kept++] = w;
            continue;
        }
        if (!hears(s, w.m.from, w.m.to) || w.incarnation != s->launchers[w.m.from].incarnation)
            continue;
        to->heard_at[w.m.from] = s->now;
        const bool is_taken = control_quorum_handle(&to->q, &w.m);
        if (is_taken && w.m.kind == CONTROL_QUORUM_ENTRY) {
            to->timeout_at = s->now + (SILENCE_MS + draw(s, 400)) * MS;
        }
        machine_follow(s, w.m.to); // its answers come behind the messages that are read here
    }
    memmove(s->wires + kept, s->wires + count,
            sizeof(s->wires[0]) * (size_t)(s->wire_count - count));
    s->wire_count = kept + s->wire_count - count;
}

static bool is_heard(const soak *s, int h, int other)
{
    const launcher *l = &s->launchers[h];
    if (h == other) return true;
    if (l->ended_at[other] > l->heard_at[other]) return s->now - l->ended_at[other] < ENDED_MS * MS;
    return s->now - l->heard_at[other] < SILENCE_MS * MS;
}

static bool has_majority(const soak *s, int h)
{
    int n = 0;
    for (int o = 0; o < HOSTS; o++) n += is_heard(s, h, o) && !s->launchers[o].q.is_back;
    return n >= control_quorum_majority(HOSTS);
}

static bool is_at_rest(const soak *s, int h)
{
    for (int k = 0; k < SLOTS; k++) {
        const process *p = &s->processes[h * SLOTS + k];
        if (!p->is_alive || p->of != NULL) return false;
    }
    return true;
}

// The record of the next epoch: processes of before keep their places. False: too few.
static bool record_make(soak *s, int h, epoch_record *out)
{
    const epoch_record *last = newest(s, h);
    bool is_taken[PROCESSES] = {false};
    out->epoch = last->epoch + 1;
    for (int o = 0; o < HOSTS; o++) {
        const bool is_in = is_heard(s, h, o) && is_at_rest(s, o);
        out->incarnation[o] = is_in ? s->launchers[o].incarnation : -1;
    }
    for (int p = 0; p < PLACES; p++) {
        const int n = last->process_of[p];
        out->process_of[p] = n >= 0 && out->incarnation[host_of(n)] >= 0 ? n : -1;
        if (out->process_of[p] >= 0) is_taken[n] = true;
    }
    for (int p = 0; p < PLACES; p++) {
        for (int n = 0; n < PROCESSES && out->process_of[p] < 0; n++) {
            if (is_taken[n] || out->incarnation[host_of(n)] < 0) continue;
            out->process_of[p] = n;
            is_taken[n] = true;
        }
        if (out->process_of[p] < 0) return false;
    }
    return true;
}

// Whether the leader must end the epoch of its record: a part of it is missing, or someone is back.
static bool must_break(const soak *s, int h, const epoch_record *r)
{
    if (r->epoch == 0) return true;
    for (int o = 0; o < HOSTS; o++) {
        const launcher *l = &s->launchers[o];
        const bool is_in = r->incarnation[o] == l->incarnation;
        if (r->incarnation[o] >= 0 && (!is_heard(s, h, o) || !is_in)) return true;
        if (is_heard(s, h, o) && !is_in && is_at_rest(s, o)) return true;
    }
    for (int p = 0; p < PLACES; p++) {
        const process *x = &s->processes[r->process_of[p]];
        const int o = host_of(r->process_of[p]);
        const bool has_begun = s->launchers[o].applied >= r->epoch && hears(s, h, o);
        if (has_begun && (x->of == NULL || x->of->number != r->epoch)) return true;
    }
    return false;
}

static void lead(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    const epoch_record *r = newest(s, h);
    if (l->q.role != CONTROL_LEADS || !control_quorum_may_propose(&l->q)) return;
    if (must_break(s, h, r)) s->breaks = s->breaks > r->epoch ? s->breaks : r->epoch;
    if (s->breaks < r->epoch) return;
    for (int o = 0; o < HOSTS; o++) { // those that are heard are at rest, or have a new process
        if (is_heard(s, h, o) && hears(s, h, o) && !is_at_rest(s, o)) return;
    }
    epoch_record next;
    if (!record_make(s, h, &next)) return;
    assert_true(s->record_count < RECORDS_MAX);
    s->records[s->record_count] = next;
    if (control_quorum_propose(&l->q, (uint64_t)s->record_count)) s->record_count++;
    machine_follow(s, h);
}

// Gives out the places of the newest record.
static void apply(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    const epoch_record *r = newest(s, h);
    if (r->epoch <= l->applied || l->q.is_back) return;
    l->applied = r->epoch;
    epoch *e = NULL;
    for (int i = 0; i < COUNT_OF(s->epochs); i++) {
        if (s->epochs[i] != NULL && s->epochs[i]->number == r->epoch) e = s->epochs[i];
    }
    for (int k = 0; k < SLOTS; k++) {
        const int n = h * SLOTS + k;
        process *p = &s->processes[n];
        int place = -1;
        for (int i = 0; i < PLACES; i++) place = r->process_of[i] == n ? i : place;
        if (r->incarnation[h] != l->incarnation || p->of != NULL) process_end(s, n); // left behind
        if (place < 0 || r->incarnation[h] != l->incarnation || !p->is_alive) continue;
        if (e == NULL) e = epoch_new(s, r->epoch);
        p->of = e;
        p->place = place;
        p->is = IDLE;
        p->left_at = 0;
    }
}

static void processes_watch(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    for (int k = 0; k < SLOTS; k++) {
        const int n = h * SLOTS + k;
        process *p = &s->processes[n];
        p->is_alive = p->is_alive || s->now >= p->starts_at;
        if (p->of == NULL || l->is_cut || p->of->number > s->breaks) continue;
        // The leader has asked all ranks to leave; one that does not is ended.
        if (p->left_at == 0) p->left_at = s->now;
        p->of->is_broken = true;
        if (!p->is_stopped) part_end(s, n, false);
        if (p->is_stopped && s->now - p->left_at > READY_MS * MS) process_end(s, n);
    }
}

static void launcher_run(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    if (l->is_dead) {
        if (s->now < l->back_at) return;
        l->is_dead = false;
        l->incarnation++;
        l->applied = 0;
        control_quorum_return(&l->q, h, HOSTS, s->out[h]);
        l->majority_at = s->now;
        l->timeout_at = s->now + 2 * SILENCE_MS * MS;
    }
    processes_watch(s, h);
    if (has_majority(s, h)) {
        l->majority_at = s->now;
    } else if (l->q.role == CONTROL_LEADS) {
        control_quorum_retire(&l->q);
    }
    if (s->now - l->majority_at > CUT_MS * MS) { // the others may have gone on
        for (int k = 0; k < SLOTS; k++) {
            if (s->processes[h * SLOTS + k].of != NULL) process_end(s, h * SLOTS + k);
        }
    }
    const int leader = l->q.leader;
    const bool has_ended = leader >= 0 && leader != h && l->ended_at[leader] > l->heard_at[leader];
    if (has_ended && !is_heard(s, h, leader)) {
        l->timeout_at = min_i64(l->timeout_at, l->ended_at[leader] + (ENDED_MS + 30 * h) * MS);
    }
    if (s->now >= l->timeout_at && l->q.role != CONTROL_LEADS) {
        control_quorum_timeout(&l->q);
        l->timeout_at = s->now + (SILENCE_MS / 4 + draw(s, 400)) * MS;
    }
    if (s->now >= l->beat_at) {
        l->beat_at = s->now + BEAT_MS * MS;
        control_quorum_beat(&l->q);
        for (int o = 0; o < HOSTS; o++) { // the reports, which all members send
            if (o != h && hears(s, h, o)) s->launchers[o].heard_at[h] = s->now;
        }
    }
    machine_follow(s, h);
    lead(s, h);
    apply(s, h);
}

// ---- faults -------------------------------------------------------------------------------------

static void host_cut(soak *s, int h, bool is_cut)
{
    s->launchers[h].is_cut = is_cut;
    for (int n = 0; n < PROCESSES; n++) {
        const process *p = &s->processes[n];
        if (p->of == NULL || rank_of(p) == NULL) continue;
        // A rank is cut off from its coordinator if one of the two hosts is.
        const process *first = NULL;
        for (int k = 0; k < PROCESSES; k++) {
            if (s->processes[k].of == p->of && s->processes[k].place == 0) first = &s->processes[k];
        }
        const int at = first != NULL ? host_of((int)(first - s->processes)) : -1;
        if (at < 0 || (host_of(n) == h) == (at == h)) continue;
        rank_of(p)->is_cut = is_cut;
        p->of->has_fault[p->place] = true;
    }
    for (int n = 0; n < SLOTS; n++) {
        const process *p = &s->processes[h * SLOTS + n];
        if (p->of != NULL) p->of->has_fault[p->place] = true;
    }
}

static void launcher_end(soak *s, int h)
{
    launcher *l = &s->launchers[h];
    l->is_dead = true;
    l->back_at = s->now + (1000 + draw(s, 4000)) * MS;
    for (int k = 0; k < SLOTS; k++) process_end(s, h * SLOTS + k);
    for (int o = 0; o < HOSTS; o++) s->launchers[o].ended_at[h] = s->now;
}

static void process_stop(soak *s, int n, bool is_stopped)
{
    process *p = &s->processes[n];
    p->is_stopped = is_stopped;
    s->stopped = is_stopped ? n : -1;
    if (p->of == NULL || rank_of(p) == NULL) return;
    rank_of(p)->is_stopped = is_stopped;
    if (is_stopped) p->of->has_fault[p->place] = true;
    if (p->place == 0) p->of->j.is_coordinator_stopped = is_stopped;
}

static int in_phase(const soak *s, phase is)
{
    int n = 0;
    for (int k = 0; k < PROCESSES; k++) n += s->processes[k].is == is;
    return n;
}

// A process ends during the recovery from another fault: not the one that has the copy of what was
// lost, or of which that one had the copy, until all have copies again.
static void second_fault(soak *s)
{
    const int n = (int)draw(s, PROCESSES);
    const process *p = &s->processes[n];
    const int apart = (p->place - s->spared + PLACES) % PLACES;
    // A process that is stopped may be lost yet.
    const bool is_whole = in_phase(s, COMPUTES) + in_phase(s, VOTES) == PLACES && s->stopped < 0;
    s->second_at = 0;
    if (!p->is_alive || (!is_whole && (apart == SLOTS || apart == PLACES - SLOTS))) return;
    process_end(s, n);
    s->faults++;
    s->recoveries++; // one for both
}

// A fault of a random kind, at a random moment.
static void fault(soak *s)
{
    int n = (int)draw(s, PROCESSES);
    while (s->processes[n].of == NULL) n = (n + 1) % PROCESSES;
    const uint32_t kind = s->kills_only ? 0 : draw(s, 10);
    s->faults++;
    s->lost_at = s->now;
    s->spared = s->processes[n].place;
    if (!s->kills_only && kind < 7 && draw(s, 2) == 0) s->second_at = s->now + draw(s, 800) * MS;
    s->is_aimed = draw(s, 2) == 0;
    if (kind < 5) {
        process_end(s, n);
    } else if (kind < 7) {
        process_stop(s, n, true);
        s->heal_at = s->now + (50 + draw(s, 2500)) * MS;
    } else if (kind < 9) {
        launcher_end(s, host_of(n));
    } else {
        host_cut(s, host_of(n), true);
        s->heal_at = s->now + (200 + draw(s, 6000)) * MS;
    }
}

static void fault_end(soak *s)
{
    for (int h = 0; h < HOSTS; h++) {
        if (s->launchers[h].is_cut) host_cut(s, h, false);
    }
    if (s->stopped >= 0) process_stop(s, s->stopped, false);
}

static bool trains(const soak *s)
{
    return in_phase(s, COPIES) + in_phase(s, COMPUTES) + in_phase(s, VOTES) == PLACES;
}

// Every second fault comes while copies are made: some ranks have the one of this step, others not.
static bool is_moment(const soak *s)
{
    return !s->is_aimed || (in_phase(s, COPIES) > 0 && in_phase(s, COMPUTES) > 0);
}

// ---- the day ------------------------------------------------------------------------------------

static soak *soak_new(bool kills_only, uint64_t seed)
{
    soak *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->seed = seed;
    s->kills_only = kills_only;
    s->now = 1000 * MS;
    s->stopped = -1;
    s->record_count = 1; // record 0: no epoch yet
    for (int p = 0; p < PLACES; p++) s->records[0].process_of[p] = -1;
    for (int p = 0; p < PLACES; p++) s->right.now[p] = s->right.before[p] = 0;
    for (int n = 0; n < PROCESSES; n++) process_end(s, n);
    for (int h = 0; h < HOSTS; h++) {
        launcher *l = &s->launchers[h];
        control_quorum_init(&l->q, h, HOSTS, s->out[h]);
        l->majority_at = s->now;
        l->timeout_at = s->now + (h == 0 ? BEAT_MS : SILENCE_MS + 100 * h) * MS;
    }
    return s;
}

static void soak_free(soak *s)
{
    for (int i = 0; i < COUNT_OF(s->epochs); i++) {
        if (s->epochs[i] != NULL) epoch_free(s->epochs[i]);
    }
    free(s);
}

static void soak_run(bool kills_only, uint64_t seed)
{
    const char *given = getenv("SOAK_HOURS");
    const double hours = given != NULL ? strtod(given, NULL) : 0.05;
    soak *s = soak_new(kills_only, seed);
    const int64_t begin = s->now, end = begin + (int64_t)(hours * 3600e3) * MS;
    int64_t moved_at = s->now, step = 0;
    while (s->now < end) {
        s->now += TURN_MS * MS;
        wires_run(s);
        for (int h = 0; h < HOSTS; h++) launcher_run(s, h);
        epochs_run(s);
        for (int n = 0; n < PROCESSES; n++) rank_run(s, n);
        notices_check(s);
        if (s->heal_at > 0 && s->now >= s->heal_at) {
            fault_end(s);
            s->heal_at = 0;
        }
        if (s->second_at > 0 && s->now >= s->second_at && is_moment(s)) second_fault(s);
        if (s->fault_at == 0 && trains(s)) s->fault_at = s->now + (10000 + draw(s, 10000)) * MS;
        if (s->fault_at > 0 && s->now >= s->fault_at && s->heal_at == 0 && trains(s) &&
            is_moment(s)) {
            fault(s);
            s->fault_at = s->now + (10000 + draw(s, 10000)) * MS;
        }
        if (s->step > step) moved_at = s->now;
        step = s->step;
        if (s->now - moved_at > STALL_MS * MS) fail_msg("no step since step %lld", (long long)step);
    }
    const double share = (double)s->counted_ns / (double)(s->now - begin);
    print_message("%s: %.2f h, %d faults, %d epochs, %lld steps, %.2f%% of the time in them, going "
                  "on after %.0f ms, at worst %.0f\n",
                  kills_only ? "kills" : "all kinds", hours, s->faults,
                  s->records[s->record_count - 1].epoch, (long long)s->step, 100 * share,
                  (double)s->recover_sum / (s->recoveries > 0 ? s->recoveries : 1) / 1e6,
                  (double)s->recover_worst / 1e6);
    assert_true(s->faults >= (int)(hours * 3600 / 25) && s->recoveries >= s->faults - 1);
    if (kills_only) assert_true(share >= (hours < 1 ? 0.98 : 0.985));
    soak_free(s);
}

static void kills(void **state)
{
    (void)state;
    soak_run(true, 1);
}

static void all_kinds(void **state)
{
    (void)state;
    soak_run(false, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(kills), cmocka_unit_test(all_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
