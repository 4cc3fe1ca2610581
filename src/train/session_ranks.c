// What the ranks of a run settle between steps.
//
// All ranks run the same session: same steps, same results, to the bit. The first one has the folder,
// the checkpoints and the user's ear. Only what comes from outside can differ (a signal, a clock), and
// that is agreed on before each step; so no rank begins a step that another will not.
#include "train/session.h"

plan_mesh session_mesh(const session *s)
{
    plan_mesh m = {{0}, {0}};
    if (s->ranks.all == NULL) return m;
    m.size[AXIS_DP] = comm_ranks(s->ranks.all);
    m.at[AXIS_DP] = comm_rank(s->ranks.all);
    return m;
}

bool session_is_first(const session *s)
{
    return s->ranks.all == NULL || comm_rank(s->ranks.all) == 0;
}

status session_ranks_open(session *s, comm *all)
{
    if (all == NULL) return ST_OK;
    s->ranks.all = all;
    if (comm_ranks(all) != (int)s->r->layout.dp) {
        return fail(ST_CONFIG_CONFLICT, "layout.dp = %lld, and %d ranks were started",
                    (long long)s->r->layout.dp, comm_ranks(all));
    }
    s->ranks.hosts = comm_world(all);
    return ST_OK;
}

void session_ranks_close(session *s)
{
    s->ranks = (train_ranks){0}; // the hosts' group is the job's own
}

status session_agree(const session *s, int *value, const char *what)
{
    if (s->ranks.hosts == NULL) return ST_OK;
    int32_t shared = *value;
    TRY(comm_all_reduce(s->ranks.hosts, &shared, 1, DTYPE_I32, COMM_MAX, what, __func__));
    *value = shared;
    return ST_OK;
}

status session_meet(const session *s, const char *what)
{
    return s->ranks.hosts != NULL ? comm_barrier(s->ranks.hosts, what) : ST_OK;
}
