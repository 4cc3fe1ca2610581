// Starting and supervising processes: how a rank finds out which it is, and how local ranks are started.
//
//   launch_detect       reads what a launcher left in the environment: ours, torchrun's, srun's, Open MPI's,
//                       PMI's, that of a Kubernetes indexed job; the first complete set wins
//   launch_local        starts N ranks of this program on this machine and stays with them until all ended
//   launch_join         this rank's end of the job: the coordinator if it is rank 0's, then control
//   launch_liveness_start   tells a rank that its launcher is gone, so that it stops with a checkpoint
//
// What a child inherits: descriptors of the job's key (a pipe), of the shared control block of this host's ranks, of a
// pipe that ends with the launcher, and for rank 0 the coordinator's socket. Their numbers stand in one variable,
// TRIREME_LAUNCH; no secret does.
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include "control/control.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LAUNCH_TEXT_BYTES = 2048, LAUNCH_LOCAL_MAX = 256, LAUNCH_HOSTS_MAX = 4096 };

// ---- where am I ----------------------------------------------------------------------------------
// The environment: NULL where a variable is not set.
typedef const char *(*launch_lookup)(void *context, const char *name);

typedef struct launch_place {
    const char *launcher; // "trireme", "torchrun", "slurm", "openmpi", "pmi", "kubernetes"; "none"
    int rank, ranks;
    int local_rank, local_ranks;         // on this host; -1: the launcher does not say
    uint64_t job;                        // equal on all ranks; 0 where nothing names the job
    char address[CONTROL_ADDRESS_BYTES]; // of the coordinator, in rank 0's process; "": not known
    int key_fd, control_block_fd, liveness_fd, listen_fd; // "trireme" only; -1: none
    char note[256]; // something that the user should hear: "inside sbatch without srun: ..."; or ""
} launch_place;

// A set that is there but cannot be read is ST_CONFIG and names the variable. TRIREME_ADDRESS and
// TRIREME_PORT, where set, say where the coordinator is, with every launcher but our own.
NODISCARD status launch_detect(launch_lookup lookup, void *context, launch_place *out);

// "n[1-2,5]" -> n1, n2, n5, in order; several brackets and lists are fine. More than `limit` names, or
// anything else, is ST_CONFIG.
NODISCARD status launch_hosts(arena *a, const char *list, int64_t limit, file_names *out);

// ---- local ranks ---------------------------------------------------------------------------------
typedef struct launch_local_config {
    const host *h;
    int ranks;
    const char *program;      // path
    char *const *argv;        // of every rank
    char *const *environment; // this process's; TRIREME_LAUNCH is added
    uint64_t job;             // 0: drawn
    const char *log_folder;   // exists; gets rank-00000.log ...
    int console_fd;           // rank 0's output goes there too; -1: nowhere
    int control_block_fd;     // comm's; -1: none
    int64_t grace_ns;         // [10 s] between the first failure and the end of all others
    // A rank ended; from this thread. NULL: nobody wants to know.
    void (*on_end)(void *context, int rank, const char *said);
    void *context;
} launch_local_config;

typedef struct launch_result {
    int exit_code;    // for this process, by the table of exit codes
    int rank;         // the first that failed; -1: none
    int ended_by;     // the signal that ended it; 0: it exited
    int64_t ended_at; // monotonic: when its end was known
    char
        text[LAUNCH_TEXT_BYTES]; // to be shown last: which rank, where, how, and the end of its log
} launch_result;

// Returns when all ranks have ended and have been waited for; a status only where they could not be
// started. SIGTERM, SIGINT and SIGUSR1 are forwarded meanwhile and do nothing here.
NODISCARD status launch_local(const launch_local_config *config, launch_result *out);

// ---- the rank's side -----------------------------------------------------------------------------
typedef struct launch_job {
    control_key *key;
    control_server *server; // in rank 0's process
    control *c;
} launch_job;

typedef struct launch_join_config {
    const host *h;
    const launch_place *place; // its key_fd and listen_fd are taken
    const char *key_path;      // where no key is inherited
    bool allow_wildcard;
    uint32_t epoch;
    const control_fact *facts;
    int64_t fact_count;
    int64_t join_ns;
    control_limits limits;
    void (*report)(void *context, control_report *out);
    void (*on_notice)(void *context, const control_notice *n);
    void (*on_coordinator_notice)(void *context, const control_notice *n); // rank 0: for the log
    void *context;
} launch_join_config;
NODISCARD status launch_join(const launch_join_config *config, launch_job *out);
void launch_leave(launch_job *j); // with all others; zeroed is legal

// Calls on_end, once, from a thread of its own, when the launcher is gone. grace_ns later the process is
// ended (exit code 7): no orphan stays. 0: never. Takes fd.
typedef struct launch_liveness launch_liveness;
NODISCARD status launch_liveness_start(int fd, int64_t grace_ns, void (*on_end)(void *context),
                                       void *context, launch_liveness **out);
void launch_liveness_stop(launch_liveness *l); // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
