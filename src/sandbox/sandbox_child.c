// From the fork to the command. Only system calls: other threads of the parent may have held any
// lock when it forked.
//
//   parent ── clone ──> init (first process of its namespaces) ── clone ──> command
//
// init makes the file systems read-only but for the scratch folder, becomes a user without rights
// where it was root, and waits for the command: when init ends, the kernel ends whatever else the
// command started. Without namespaces init ends its process group, which nothing inside can leave.
// Landlock repeats the confinement of writes, so that each of both suffices; a filter of system
// calls takes sockets, and what reaches into other processes.
#include "sandbox/sandbox_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_mount_setattr
#    define SYS_mount_setattr 442
#endif
#ifndef SYS_close_range
#    define SYS_close_range 436
#endif
#ifndef SYS_landlock_create_ruleset
#    define SYS_landlock_create_ruleset 444
#    define SYS_landlock_add_rule       445
#    define SYS_landlock_restrict_self  446
#endif

pid_t sandbox_fork(bool has_spaces)
{
    const unsigned long spaces =
        has_spaces ? CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC : 0;
    return (pid_t)syscall(SYS_clone, spaces | SIGCHLD, 0, 0, 0, 0);
}

static void report(const sandbox_child *c, sandbox_stage stage, int value)
{
    const sandbox_report r = {.stage = (int32_t)stage, .value = value};
    const ssize_t n = write(c->report, &r, sizeof(r));
    (void)n;
}

static void give_up(const sandbox_child *c, sandbox_stage stage) __attribute__((noreturn));
static void give_up(const sandbox_child *c, sandbox_stage stage)
{
    report(c, stage, errno);
    _exit(1);
}

// ---- file systems -------------------------------------------------------------------------------

// linux/mount.h has this struct, but contradicts glibc's header.
typedef struct mount_change {
    uint64_t set, clear, propagation, user;
} mount_change;
enum { MOUNT_RDONLY = 1, MOUNT_RECURSIVE = 0x8000 };

// True if everything but the scratch folder is read-only, which modes and times of files obey too.
static bool mounts_confine(const char *scratch)
{
    const mount_change lock = {.set = MOUNT_RDONLY}, open = {.clear = MOUNT_RDONLY};
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return false;
    if (mount(scratch, scratch, NULL, MS_BIND, NULL) != 0) return false;
    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", MOUNT_RECURSIVE, &lock, sizeof(lock)) != 0 ||
        syscall(SYS_mount_setattr, AT_FDCWD, scratch, 0, &open, sizeof(open)) != 0) {
        return false;
    }
    // Where /proc is not wholly visible (in some containers) the old one stays.
    (void)mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    return true;
}

// The kernel's struct grew: fs since version 1, net since 4, scoped since 6.
typedef struct landlock_rules {
    uint64_t fs, net, scoped;
} landlock_rules;
enum {
    LANDLOCK_NET = 3,           // to bind and to connect TCP
    LANDLOCK_SCOPED = 3,        // abstract sockets and signals of others
    LANDLOCK_WRITES = 0x1ff2,   // version 1: WRITE_FILE, REMOVE_* and MAKE_*
    LANDLOCK_REFER = 1 << 13,   // since version 2
    LANDLOCK_TRUNCATE = 1 << 14 // since version 3
};

static bool landlock_allow(int rules, const char *path, uint64_t access)
{
    struct landlock_path_beneath_attr beneath = {.allowed_access = access};
    beneath.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (beneath.parent_fd < 0) return false;
    const bool is_ok = syscall(SYS_landlock_add_rule, rules, 1, &beneath, 0) == 0;
    (void)close(beneath.parent_fd);
    return is_ok;
}

static unsigned landlock_confine(const char *scratch)
{
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (version < 1) return 0;
    landlock_rules r = {.fs = LANDLOCK_WRITES, .net = LANDLOCK_NET, .scoped = LANDLOCK_SCOPED};
    if (version >= 2) r.fs |= LANDLOCK_REFER;
    if (version >= 3) r.fs |= LANDLOCK_TRUNCATE;
    const size_t bytes = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &r, bytes, 0);
    if (rules < 0) return 0;
    const uint64_t rewrite = r.fs & (uint64_t)(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_TRUNCATE);
    const bool is_ok = landlock_allow(rules, scratch, r.fs) &&
                       landlock_allow(rules, "/dev/null", rewrite) &&
                       syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    (void)close(rules);
    // Before version 3 a file that exists could still be cut off.
    if (!is_ok) return 0;
    return (version >= 3 ? SANDBOX_WRITES : 0U) | (version >= 6 ? SANDBOX_PROCESSES : 0U);
}

// ---- system calls -------------------------------------------------------------------------------

#if defined(__x86_64__)
#    define FILTER_PROCESSOR AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#    define FILTER_PROCESSOR AUDIT_ARCH_AARCH64
#endif

#ifdef FILTER_PROCESSOR
#    define DENY(number)                                     \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
#    define FILTER_BEGIN                                                                       \
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),               \
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FILTER_PROCESSOR, 1, 0),                       \
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),                               \
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),             \
            BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1), /* x32 has other numbers */ \
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
// io_uring makes sockets without socket().
#    define FILTER_ALWAYS                                                                         \
        DENY(SYS_socket), DENY(425 /* io_uring_setup */), DENY(SYS_ptrace),                       \
            DENY(SYS_process_vm_readv), DENY(SYS_process_vm_writev), DENY(438 /* pidfd_getfd */), \
            DENY(SYS_bpf), DENY(SYS_add_key), DENY(SYS_keyctl), DENY(SYS_request_key),            \
            DENY(SYS_mount), DENY(SYS_unshare), DENY(SYS_setns)
#    define FILTER_END BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#endif

static unsigned filter_confine(const sandbox_child *c)
{
#ifdef FILTER_PROCESSOR
    struct sock_filter with_spaces[] = {FILTER_BEGIN, FILTER_ALWAYS, FILTER_END};
    struct sock_filter without[] = {FILTER_BEGIN, FILTER_ALWAYS, DENY(SYS_setsid),
                                    DENY(SYS_setpgid), FILTER_END};
    const struct sock_fprog program = {
        .len = (unsigned short)(c->has_spaces ? COUNT_OF(with_spaces) : COUNT_OF(without)),
        .filter = c->has_spaces ? with_spaces : without};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? SANDBOX_NETWORK : 0U;
#else
    return c->has_spaces ? SANDBOX_NETWORK : 0U; // its own network, which is empty
#endif
}

// ---- the command --------------------------------------------------------------------------------

static bool limit_set(int which, int64_t value)
{
    const struct rlimit limit = {.rlim_cur = (rlim_t)value, .rlim_max = (rlim_t)value};
    return setrlimit((__rlimit_resource_t)which, &limit) == 0;
}

static bool limits_set(const sandbox_child *c)
{
    const sandbox_limits *l = &c->limits;
    const bool is_ok = limit_set(RLIMIT_CPU, l->time_ns / 1000000000 + 1) &&
                       limit_set(RLIMIT_AS, l->memory_bytes) &&
                       limit_set(RLIMIT_FSIZE, l->file_bytes) && limit_set(RLIMIT_CORE, 0) &&
                       limit_set(RLIMIT_NOFILE, 256);
    // Without a namespace the user's other processes would count. init is one more.
    return is_ok && (!c->has_spaces || limit_set(RLIMIT_NPROC, l->processes + 1));
}

static void signals_reset(void)
{
    sigset_t none;
    (void)sigemptyset(&none);
    for (int i = 1; i < NSIG; i++) (void)signal(i, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static void command_run(const sandbox_child *c, unsigned confined) __attribute__((noreturn));
static void command_run(const sandbox_child *c, unsigned confined)
{
    enum { NEEDED = SANDBOX_WRITES | SANDBOX_NETWORK };
    if (!limits_set(c) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        give_up(c, SANDBOX_STAGE_LIMITS);
    }
    confined |= landlock_confine(c->scratch);
    confined |= filter_confine(c);
    report(c, SANDBOX_STAGE_CONFINED, (int)confined);
    if (c->argv == NULL || (confined & NEEDED) != NEEDED) _exit(0);
    (void)execve(c->argv[0], c->argv, c->environment);
    give_up(c, SANDBOX_STAGE_EXEC);
}

// The user's number is the only one in the namespace, and is the same outside.
static bool user_change(void)
{
    return syscall(SYS_setgroups, 0, NULL) == 0 &&
           syscall(SYS_setresgid, SANDBOX_USER, SANDBOX_USER, SANDBOX_USER) == 0 &&
           syscall(SYS_setresuid, SANDBOX_USER, SANDBOX_USER, SANDBOX_USER) == 0;
}

static void close_between(int after, int before)
{
    if (before - after > 1) {
        (void)syscall(SYS_close_range, (unsigned)(after + 1), (unsigned)(before - 1), 0U);
    }
}

// Only the standard descriptors and both pipes remain: init never calls exec(), and the parent
// waits for the end of each pipe.
static bool descriptors_set(const sandbox_child *c)
{
    const int low = c->go < c->report ? c->go : c->report;
    const int high = c->go < c->report ? c->report : c->go;
    if (dup2(c->in, 0) < 0 || dup2(c->out, 1) < 0 || dup2(c->err, 2) < 0) return false;
    close_between(2, low);
    close_between(low, high);
    close_between(high, INT_MAX);
    return true;
}

void sandbox_child_run(const sandbox_child *c)
{
    char byte;
    unsigned confined = 0;
    if (!descriptors_set(c)) give_up(c, SANDBOX_STAGE_FORK);
    (void)setpgid(0, 0);
    signals_reset();
    if (read(c->go, &byte, 1) != 1) _exit(1); // the parent has gone, or could not map the user
    if (c->has_spaces) {
        confined |= SANDBOX_PROCESSES;
        // The system does not count the processes of its first user.
        if (c->is_root || geteuid() != 0) confined |= SANDBOX_COUNT;
        if (mounts_confine(c->scratch)) confined |= SANDBOX_WRITES | SANDBOX_MODES;
    }
    if (c->is_root && !user_change()) give_up(c, SANDBOX_STAGE_USER);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); // a change of the user takes it back
    if (chdir(c->scratch) != 0) give_up(c, SANDBOX_STAGE_SCRATCH);
    const pid_t command = sandbox_fork(false);
    if (command < 0) give_up(c, SANDBOX_STAGE_FORK);
    if (command == 0) command_run(c, confined);
    for (;;) {
        int wait_status = 0;
        const pid_t ended = waitpid(-1, &wait_status, 0);
        if (ended < 0 && errno != EINTR) break;
        if (ended != command) continue;
        report(c, SANDBOX_STAGE_ENDED, wait_status);
        break;
    }
    (void)kill(0, SIGKILL); // its group; in namespaces the end of this process ends all
    _exit(0);
}
