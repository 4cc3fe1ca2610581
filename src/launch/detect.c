// Finds out which launcher started this process. The table has one row per launcher: the variables
// that must all be set, those that only this launcher sets, and a function that reads the rest.
// Rows are in order of trust: variables set closest to this process come first.
//
// A set that is begun but not complete is refused: otherwise each of N processes would train alone,
// into the same folder. So are values that contradict each other.
#include "launch/launch.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { PORT_FIRST = 20000, PORT_COUNT = 10000, NEEDS_MAX = 4, NAMES_BYTES = 256 };

typedef struct env {
    launch_lookup lookup;
    void *context;
} env;

static const char *get(const env *e, const char *name)
{
    const char *value = e->lookup(e->context, name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

// Reads a number in [least, most]; ST_CONFIG otherwise.
static status get_number(const env *e, const char *name, int64_t least, int64_t most, int *out)
{
    const char *value = get(e, name);
    int64_t x = 0;
    if (value == NULL || !text_parse_i64(value, &x) || x < least || x > most) {
        return fail(ST_CONFIG, "%s is \"%s\", expected a number from %lld to %lld", name,
                    value == NULL ? "" : value, (long long)least, (long long)most);
    }
    *out = (int)x;
    return ST_OK;
}

static status get_if(const env *e, const char *name, int64_t least, int64_t most, int *out)
{
    return get(e, name) == NULL ? ST_OK : get_number(e, name, least, most, out);
}

static status get_ranks(const env *e, const char *rank, const char *ranks, launch_place *p)
{
    TRY(get_number(e, ranks, 1, CONTROL_RANKS_MAX, &p->ranks));
    return get_number(e, rank, 0, p->ranks - 1, &p->rank);
}

// The ranks of a host are numbered in the order of all ranks. So at least as many ranks come before
// this one, and after it, as the host has there.
static status check_local(const char *rank, const char *ranks, const launch_place *p)
{
    if (p->local_rank < 0) return ST_OK;
    const bool is_beyond = p->local_ranks > 0 && p->local_rank >= p->local_ranks;
    const bool is_early = p->local_rank > p->rank;
    const bool is_late = p->local_ranks > 0 && p->local_ranks - p->local_rank > p->ranks - p->rank;
    if (is_beyond) {
        return fail(ST_CONFIG, "%s is %d, but %s is %d: it must be smaller; correct one of them",
                    rank, p->local_rank, ranks, p->local_ranks);
    }
    if (!is_early && !is_late) return ST_OK;
    return fail(
        ST_CONFIG,
        "rank %d of %d cannot have %s=%d%s: a host's ranks are numbered in the order of all "
        "ranks; correct these variables, or start the ranks with a launcher that sets them",
        p->rank, p->ranks, rank, p->local_rank,
        is_late ? " with so many ranks after it on its host" : "");
}

static status get_local(const env *e, const char *rank, const char *ranks, launch_place *p)
{
    TRY(get_if(e, ranks, 1, p->ranks, &p->local_ranks));
    TRY(get_if(e, rank, 0, p->ranks - 1, &p->local_rank));
    return check_local(rank, ranks, p);
}

static uint64_t job_of(const char *launcher, const char *a, const char *b)
{
    char whole[512];
    (void)snprintf(whole, sizeof(whole), "%s/%s/%s", launcher, a == NULL ? "" : a,
                   b == NULL ? "" : b);
    return hash64(whole, (int64_t)strlen(whole), 0) | 1;
}

// Derives a port from the job, so that jobs on the same hosts are unlikely to share one.
static int port_of(uint64_t job)
{
    return PORT_FIRST + (int)(job % PORT_COUNT);
}

static status set_address(launch_place *p, const char *name, int port)
{
    const bool is_v6 = strchr(name, ':') != NULL && name[0] != '[';
    const int n = snprintf(p->address, sizeof(p->address), is_v6 ? "[%s]:%d" : "%s:%d", name, port);
    if (n < 0 || n >= (int)sizeof(p->address)) {
        return fail(ST_CONFIG, "the host name \"%.60s...\" is too long", name);
    }
    return ST_OK;
}

// If all ranks are on one host, they need no network: they use a socket named after the job.
static void set_local_address(launch_place *p)
{
    if (p->local_ranks == p->ranks && p->job != 0) {
        (void)snprintf(p->address, sizeof(p->address), "unix:@trireme-%016llx",
                       (unsigned long long)p->job);
    }
}

// ---- rows ---------------------------------------------------------------------------------------
// Reads "RANK RANKS JOB KEY BLOCK LIVENESS LISTEN ADDRESS", which launch_local writes, or
// "post FD", which launch_live writes: the place comes later.
static status read_ours(const env *e, launch_place *p)
{
    const char *value = get(e, "TRIREME_LAUNCH");
    unsigned long long job = 0;
    int at = -1;
    char end = '\0';
    if (sscanf(value, "post %d%c", &p->post_fd, &end) == 1 && p->post_fd >= 0) return ST_OK;
    p->post_fd = -1;
    const int n = sscanf(value, "%d %d %llx %d %d %d %d %n", &p->rank, &p->ranks, &job, &p->key_fd,
                         &p->control_block_fd, &p->liveness_fd, &p->listen_fd, &at);
    if (n != 7 || at < 0 || p->ranks < 1 || p->ranks > LAUNCH_LOCAL_MAX || p->rank < 0 ||
        p->rank >= p->ranks || strlen(value + at) >= sizeof(p->address)) {
        return fail(
            ST_CONFIG,
            "TRIREME_LAUNCH does not have the form that trireme's launcher writes; unset it");
    }
    p->job = job;
    p->local_rank = p->rank;
    p->local_ranks = p->ranks;
    (void)snprintf(p->address, sizeof(p->address), "%s", value + at);
    return ST_OK;
}

static status read_torchrun(const env *e, launch_place *p)
{
    int port = 0;
    TRY(get_ranks(e, "RANK", "WORLD_SIZE", p));
    TRY(get_local(e, "LOCAL_RANK", "LOCAL_WORLD_SIZE", p));
    TRY(get_number(e, "MASTER_PORT", 1, 65534, &port));
    // Under torchrun itself, its agent uses that port.
    const char *agent = get(e, "TORCHELASTIC_USE_AGENT_STORE");
    if (agent != NULL && strcmp(agent, "True") == 0) port++;
    const char *run = get(e, "TORCHELASTIC_RUN_ID");
    p->job = job_of("torchrun", run != NULL ? run : get(e, "MASTER_ADDR"), get(e, "MASTER_PORT"));
    return set_address(p, get(e, "MASTER_ADDR"), port);
}

// Returns the number of tasks on node `node` in a list like "2(x3),1".
static int tasks_on_node(const char *list, int node)
{
    for (const char *at = list; at != NULL && *at != '\0';) {
        int tasks = 0, times = 1, used = 0;
        if (sscanf(at, "%9d%n", &tasks, &used) != 1) return -1;
        at += used;
        if (sscanf(at, "(x%9d)%n", &times, &used) == 1) at += used;
        if (times < 1 || tasks < 1) return -1;
        if (node < times) return tasks;
        node -= times;
        if (*at == ',') at++;
    }
    return -1;
}

static status read_slurm(const env *e, launch_place *p)
{
    const char *steps = get(e, "SLURM_STEP_NUM_TASKS");
    const char *nodes = get(e, "SLURM_STEP_NODELIST");
    if (nodes == NULL) nodes = get(e, "SLURM_JOB_NODELIST");
    TRY(get_ranks(e, "SLURM_PROCID", steps != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", p));
    TRY(get_if(e, "SLURM_LOCALID", 0, p->ranks - 1, &p->local_rank));
    const char *tasks = get(e, "SLURM_STEP_TASKS_PER_NODE");
    if (tasks == NULL) tasks = get(e, "SLURM_TASKS_PER_NODE");
    int node = -1;
    TRY(get_if(e, "SLURM_NODEID", 0, LAUNCH_HOSTS_MAX, &node));
    if (node >= 0 && tasks != NULL) p->local_ranks = tasks_on_node(tasks, node);
    TRY(check_local("SLURM_LOCALID", "the number of tasks on this node", p));
    // A restarted job gets another number, so that processes of the previous run cannot join it.
    char step[64];
    const char *restarts = get(e, "SLURM_RESTART_COUNT");
    (void)snprintf(step, sizeof(step), "%.30s.%.30s", get(e, "SLURM_STEP_ID"),
                   restarts == NULL ? "0" : restarts);
    p->job = job_of("slurm", get(e, "SLURM_JOB_ID"), step);
    arena *a = NULL;
    file_names hosts = {0};
    TRY(arena_create("host list", 1 << 22, &a));
    status st = launch_hosts(a, nodes, LAUNCH_HOSTS_MAX, &hosts);
    if (st == ST_OK) st = set_address(p, hosts.names[0], port_of(p->job));
    arena_destroy(a);
    if (st == ST_OK) set_local_address(p);
    return st;
}

static status read_openmpi(const env *e, launch_place *p)
{
    TRY(get_ranks(e, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", p));
    TRY(get_local(e, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", p));
    const char *space = get(e, "PMIX_NAMESPACE");
    if (space == NULL) space = get(e, "OMPI_MCA_ess_base_jobid");
    if (space != NULL) p->job = job_of("openmpi", space, NULL);
    set_local_address(p);
    return ST_OK;
}

static status read_pmi(const env *e, launch_place *p)
{
    TRY(get_ranks(e, "PMI_RANK", "PMI_SIZE", p));
    TRY(get_local(e, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", p));
    const char *job = get(e, "PMI_JOBID");
    if (job != NULL) p->job = job_of("pmi", job, NULL);
    set_local_address(p);
    return ST_OK;
}

// Pods of an indexed job are named JOB-INDEX. They are found under the headless service with the
// job's name, or under TRIREME_SERVICE.
static status read_kubernetes(const env *e, launch_place *p)
{
    const char *name = get(e, "HOSTNAME"), *service = get(e, "TRIREME_SERVICE");
    char first[CONTROL_ADDRESS_BYTES];
    TRY(get_ranks(e, "JOB_COMPLETION_INDEX", "WORLD_SIZE", p));
    p->local_rank = 0;
    p->local_ranks = 1;
    const char *dash = name == NULL ? NULL : strrchr(name, '-');
    if (dash == NULL) {
        return fail(ST_CONFIG,
                    "HOSTNAME is \"%s\", expected the JOB-INDEX of an indexed job's pod; otherwise "
                    "set TRIREME_ADDRESS to the host:port of index 0",
                    name == NULL ? "" : name);
    }
    const int length = (int)(dash - name);
    const int n = service != NULL
                      ? snprintf(first, sizeof(first), "%.*s-0.%s", length, name, service)
                      : snprintf(first, sizeof(first), "%.*s-0.%.*s", length, name, length, name);
    if (n < 0 || n >= (int)sizeof(first)) return fail(ST_CONFIG, "HOSTNAME is too long");
    p->job = job_of("kubernetes", first, NULL);
    return set_address(p, first, port_of(p->job));
}

typedef struct launcher {
    const char *name;
    const char *needs[NEEDS_MAX];
    const char *signs[NEEDS_MAX]; // one of these shows that this launcher started the process
    status (*read)(const env *e, launch_place *p);
} launcher;

static const launcher launchers[] = {
    {"trireme", {"TRIREME_LAUNCH"}, {NULL}, read_ours},
    {"torchrun",
     {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
     {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
     read_torchrun},
    {"slurm",
     {"SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_NODELIST"},
     {"SLURM_PROCID", "SLURM_LOCALID"},
     read_slurm},
    {"openmpi",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     read_openmpi},
    {"pmi", {"PMI_RANK", "PMI_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, read_pmi},
    {"kubernetes", {"JOB_COMPLETION_INDEX", "WORLD_SIZE"}, {NULL}, read_kubernetes},
};

static bool is_complete(const env *e, const launcher *l)
{
    for (int i = 0; i < NEEDS_MAX && l->needs[i] != NULL; i++) {
        if (get(e, l->needs[i]) == NULL) return false;
    }
    return true;
}

// True inside sbatch, salloc or an interactive step: a job's variables are set, but no ranks were
// started.
static bool is_batch_step(const env *e)
{
    enum {
        FIRST_SPECIAL_LOW = 0xfff0
    }; // 0xfffffffb is the batch script; the values near it are special too
    const char *step = get(e, "SLURM_STEP_ID");
    int64_t id = 0;
    return step == NULL || !text_parse_i64(step, &id) ||
           id >= ((INT64_C(0xffff) << 16) | FIRST_SPECIAL_LOW);
}

// Joins the names of the row that are set, or not set, to a text like "RANK and WORLD_SIZE".
static int names_join(const env *e, const char *const *names, bool is_set, char out[NAMES_BYTES])
{
    const char *found[NEEDS_MAX];
    int count = 0;
    for (int i = 0; i < NEEDS_MAX && names[i] != NULL; i++) {
        if ((get(e, names[i]) != NULL) == is_set) found[count++] = names[i];
    }
    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(out);
        const char *between = i == 0 ? "" : i + 1 < count ? ", " : " and ";
        (void)snprintf(out + used, NAMES_BYTES - used, "%s%s", between, found[i]);
    }
    return count;
}

// True if the variables of an incomplete set do not say that there are other ranks.
static bool is_alone(const env *e, const launcher *l)
{
    const char *rank = get(e, "RANK"), *ranks = get(e, "WORLD_SIZE");
    if (l->read == read_torchrun) {
        return ranks != NULL && strcmp(ranks, "1") == 0 && (rank == NULL || strcmp(rank, "0") == 0);
    }
    // sbatch and salloc set these variables, too.
    rank = get(e, "SLURM_PROCID");
    return l->read == read_slurm && get(e, "SLURM_JOB_ID") != NULL && is_batch_step(e) &&
           (rank == NULL || strcmp(rank, "0") == 0);
}

static status refuse_incomplete(const env *e)
{
    char set[NAMES_BYTES], missing[NAMES_BYTES];
    for (int64_t i = 0; i < COUNT_OF(launchers); i++) {
        const launcher *l = &launchers[i];
        const int count = names_join(e, l->signs, true, set);
        if (count == 0 || is_alone(e, l)) continue;
        const int wanted = names_join(e, l->needs, false, missing);
        return fail(ST_CONFIG,
                    "%s %s set in the environment, but %s %s not: this process cannot know its "
                    "place among the ranks; set %s on every rank, or unset %s to train with this "
                    "process alone",
                    set, count > 1 ? "are" : "is", missing, wanted > 1 ? "are" : "is",
                    wanted > 1 ? "them all" : "it", count > 1 ? "these" : "it");
    }
    return ST_OK;
}

// Launchers whose place this program does not read, because their rendezvous differs or is not
// told: IBM's jsrun, MVAPICH, Flux, HPE's PALS and ALPS, Horovod, PMIx without Open MPI, MPICH's
// local number alone.
static status refuse_unread(const env *e)
{
    static const struct {
        const char *rank, *ranks; // ranks NULL: not told
    } unread[] = {{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                  {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                  {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
                  {"PALS_RANKID", NULL},
                  {"ALPS_APP_PE", NULL},
                  {"HOROVOD_RANK", "HOROVOD_SIZE"},
                  {"PMIX_RANK", NULL},
                  {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
    for (int64_t i = 0; i < COUNT_OF(unread); i++) {
        const char *rank = get(e, unread[i].rank);
        const char *ranks = unread[i].ranks == NULL ? NULL : get(e, unread[i].ranks);
        int64_t r = 0, n = 1;
        const bool is_first = rank == NULL || (text_parse_i64(rank, &r) && r == 0);
        const bool is_only = ranks == NULL || (text_parse_i64(ranks, &n) && n <= 1);
        if (is_first && is_only) continue;
        return fail(ST_CONFIG,
                    "%s is %s%s%s: other processes were started with this one, by a launcher "
                    "whose variables are not read; give each of them RANK, WORLD_SIZE, "
                    "MASTER_ADDR and MASTER_PORT, or unset %s to train with this process alone",
                    unread[i].rank, rank == NULL ? "not set" : rank, ranks == NULL ? "" : " of ",
                    ranks == NULL ? "" : ranks, rank == NULL ? unread[i].ranks : unread[i].rank);
    }
    return ST_OK;
}

// RANK and WORLD_SIZE that are not torchrun's, because its set is not complete, and differ from
// what another launcher says.
static status refuse_other_rank(const env *e, const launch_place *p)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE"};
    const int values[] = {p->rank, p->ranks};
    for (int i = 0; i < 2; i++) {
        int given = values[i];
        TRY(get_if(e, names[i], 0, CONTROL_RANKS_MAX, &given));
        if (given == values[i]) continue;
        return fail(ST_CONFIG,
                    "%s is %d, but the variables of %s say %d: unset %s, or set all of RANK, "
                    "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                    names[i], given, p->launcher, values[i], names[i]);
    }
    return ST_OK;
}

// Variables that alone do not show other ranks, but that a user may have set for some.
static void note_leftover(const env *e, launch_place *p)
{
    const char *const names[] = {"MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "NODE_RANK"};
    char set[NAMES_BYTES];
    const int count = names_join(e, names, true, set);
    if (count == 0 || get(e, "WORLD_SIZE") != NULL) return;
    (void)snprintf(p->note, sizeof(p->note),
                   "%.64s %s set, but RANK and WORLD_SIZE are not, so this process trains alone",
                   set, count > 1 ? "are" : "is");
}

static status override_address(const env *e, launch_place *p)
{
    const char *address = get(e, "TRIREME_ADDRESS");
    int port = 0;
    TRY(get_if(e, "TRIREME_PORT", 1, 65535, &port));
    if (address != NULL) {
        if (strlen(address) >= sizeof(p->address)) {
            return fail(ST_CONFIG, "TRIREME_ADDRESS is longer than %zu bytes", sizeof(p->address));
        }
        (void)snprintf(p->address, sizeof(p->address), "%s", address);
        if (p->job == 0) p->job = job_of(p->launcher, address, NULL);
    } else if (port != 0 && strncmp(p->address, "unix:", 5) != 0 && p->address[0] != '\0') {
        char *colon = strrchr(p->address, ':');
        const size_t left = sizeof(p->address) - (size_t)(colon - p->address);
        (void)snprintf(colon, left, ":%d", port);
    }
    return ST_OK;
}

status launch_detect(launch_lookup lookup, void *context, launch_place *out)
{
    const env e = {lookup, context};
    launch_place p = {.launcher = "none",
                      .ranks = 1,
                      .local_rank = -1,
                      .local_ranks = -1,
                      .key_fd = -1,
                      .control_block_fd = -1,
                      .liveness_fd = -1,
                      .listen_fd = -1,
                      .post_fd = -1};
    const bool is_in_slurm = get(&e, "SLURM_JOB_ID") != NULL;
    for (int64_t i = 0; i < COUNT_OF(launchers); i++) {
        const launcher *l = &launchers[i];
        if (!is_complete(&e, l)) continue;
        if (l->read == read_slurm && is_batch_step(&e)) continue;
        p.launcher = l->name;
        TRY(l->read(&e, &p));
        if (l->read != read_ours) TRY(override_address(&e, &p));
        if (l->read != read_ours && l->read != read_torchrun && l->read != read_kubernetes) {
            TRY(refuse_other_rank(&e, &p));
        }
        *out = p;
        return ST_OK;
    }
    TRY(refuse_incomplete(&e));
    if (!is_in_slurm || !is_batch_step(&e)) TRY(refuse_unread(&e));
    note_leftover(&e, &p);
    if (is_in_slurm) {
        (void)snprintf(
            p.note, sizeof(p.note),
            "this process is inside a Slurm allocation but was not started by srun, so one "
            "rank runs here; `srun trireme ...` starts all ranks");
    }
    p.local_rank = 0;
    p.local_ranks = 1;
    *out = p;
    return ST_OK;
}
