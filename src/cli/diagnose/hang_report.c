// Reports the last operations of the ranks of a host.
//
// The recorders are shared memory that outlives kill -9 as long as some process holds the control
// block: the launcher, which writes this report into the run's dumps/ when a job fails, or a live
// rank, whose control block the command `hang-report` opens. For a kill of all processes at once,
// post_mortem.c writes the report at intervals.
#include "cli/diagnose/hang_report.h"

#include "comm/recorder.h"

#include <errno.h>
#include <signal.h>

enum { LOOK_BACK = 32, SHOWN = 4 };

bool cli_rank_has_begun(const comm_control_block *b, int rank, uint32_t group, uint64_t sequence)
{
    comm_record theirs[LOOK_BACK];
    const int count = comm_recorder_read(b, rank, theirs, LOOK_BACK);
    for (int i = 0; i < count; i++) {
        if (theirs[i].group == group && theirs[i].sequence >= sequence) return true;
    }
    return false;
}

static status waits_tell(const comm_control_block *b, int rank, const comm_record *r, text *out)
{
    comm_rank_state state;
    const double waited = ((double)comm_recorder_now_ns(b) - (double)r->begun_ns) / 1e9;
    TRY(text_add(out, "        in it for %.1f s; missing:", waited));
    int missing = 0;
    for (int other = 0; comm_recorder_rank(b, other, &state); other++) {
        if (other == rank || cli_rank_has_begun(b, other, r->group, r->sequence)) continue;
        TRY(text_add(out, "%s rank %d", missing++ > 0 ? "," : "", other));
    }
    return text_add(out, "%s\n", missing > 0 ? "" : " none, all have begun it");
}

static status rank_tell(const comm_control_block *b, int rank, const comm_rank_state *state,
                        text *out)
{
    comm_record records[SHOWN];
    char line[400];
    const int count = comm_recorder_read(b, rank, records, SHOWN);
    TRY(text_add(out, "rank %d  ", rank));
    if (state->pid == 0) {
        TRY(text_add(out, "has left or never started"));
    } else {
        const bool alive = kill((pid_t)state->pid, 0) == 0 || errno == EPERM;
        TRY(text_add(out, "process %d %s", state->pid, alive ? "is alive" : "has ended"));
    }
    TRY(text_add(out, ", %llu operations\n", (unsigned long long)state->records));
    for (int i = 0; i < count; i++) {
        TRY(text_add(out, "    %s\n", comm_record_text(&records[i], line, (int)sizeof(line))));
        if (records[i].done_ns == 0 && records[i].begun_ns > 0) {
            TRY(waits_tell(b, rank, &records[i], out));
        }
    }
    return ST_OK;
}

status cli_hang_report(const comm_control_block *b, text *out)
{
    comm_rank_state state;
    for (int rank = 0; comm_recorder_rank(b, rank, &state); rank++) {
        TRY(rank_tell(b, rank, &state, out));
    }
    return ST_OK;
}
