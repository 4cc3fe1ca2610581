// The shared control block: making and mapping it, its slots, its failures and its names.
#include "comm/control_block.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#    include <x86intrin.h>
#endif

static const uint64_t block_magic = UINT64_C(0x31647262306d7274); // "trm0brd1"

// ---- layout: a function of the number of ranks alone -------------------------------------------
static int64_t rows_of(int local_ranks)
{
    int64_t rows = 1024;
    while (rows < (int64_t)local_ranks * local_ranks * 8 && rows < 65536) rows *= 2;
    return rows;
}

static int64_t record_bytes(void)
{
    return align_up((int64_t)sizeof(rank_record), BLOCK_PAGE);
}

// Bytes that are reserved from the start.
static int64_t hot_bytes(int local_ranks)
{
    return BLOCK_PAGE + rows_of(local_ranks) * (int64_t)sizeof(block_row) +
           record_bytes() * local_ranks;
}

// Space for about 128 groups of all ranks, and for fewer if there are many ranks.
static int64_t area_bytes_of(int local_ranks)
{
    return min_i64(INT64_C(16) << 30, (int64_t)local_ranks * (INT64_C(192) << 20));
}

static void layout(comm_control_block *b, char *at)
{
    b->rows = rows_of(b->local_ranks);
    b->head = (block_head *)(void *)at;
    b->directory = (block_row *)(void *)(at + BLOCK_PAGE);
    b->records = at + BLOCK_PAGE + b->rows * (int64_t)sizeof(block_row);
    b->area = b->records + record_bytes() * b->local_ranks;
    b->area_bytes = area_bytes_of(b->local_ranks);
}

rank_record *rank_record_of(const comm_control_block *b, int local_rank)
{
    ASSERT(local_rank >= 0 && local_rank < b->local_ranks);
    return (rank_record *)(void *)(b->records + record_bytes() * local_rank);
}

// ---- time ---------------------------------------------------------------------------------------
static int64_t system_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifdef __x86_64__
// The recorder reads the time twice in operations of 200 ns, so it uses the counter of the
// processor, which is cheaper than the system's clock. A millisecond of both gives its rate.
static void clock_calibrate(block_head *h)
{
    const int64_t begin_ns = system_ns();
    const uint64_t begin = __rdtsc();
    int64_t ns = begin_ns;
    while (ns - begin_ns < 1000000) ns = system_ns();
    const uint64_t ticks = __rdtsc() - begin;
    h->clock_tsc = begin;
    h->clock_ns = (uint64_t)begin_ns;
    h->clock_mult = ticks > 0 ? ((uint64_t)(ns - begin_ns) << 32) / ticks : 0;
}

int64_t block_now_ns(const comm_control_block *b)
{
    const block_head *h = b->head;
    if (h->clock_mult == 0) return system_ns();
    const uint64_t ticks = __rdtsc() - h->clock_tsc;
    const uint64_t high = ticks >> 32, low = ticks & UINT32_MAX;
    return (int64_t)(h->clock_ns + high * h->clock_mult + (low * h->clock_mult >> 32));
}
#else
static void clock_calibrate(block_head *h)
{
    h->clock_mult = 0;
}

int64_t block_now_ns(const comm_control_block *b)
{
    (void)b;
    return system_ns();
}
#endif

// ---- making and mapping -------------------------------------------------------------------------
static status map(comm_control_block *b)
{
    void *at =
        mmap(NULL, (size_t)b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, b->fd, 0);
    if (at == MAP_FAILED) {
        return fail(ST_NO_MEMORY,
                    "cannot map the control block of this host's ranks, %lld bytes: %s",
                    (long long)b->bytes, strerror(errno));
    }
    (void)madvise(at, (size_t)b->bytes, MADV_DONTDUMP); // core files would hold holes of gigabytes
    layout(b, at);
    return ST_OK;
}

static status file_make(comm_control_block *b)
{
    TRY(fault_point("comm.control_block.create"));
    b->fd = memfd_create("trireme-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (b->fd < 0) {
        return fail(ST_NO_MEMORY, "cannot make the control block of this host's ranks: %s%s",
                    strerror(errno), host_limit_remedy(errno));
    }
    const int error = ftruncate(b->fd, b->bytes) != 0 ? errno
                      : fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0
                          ? errno
                          : posix_fallocate(b->fd, 0, hot_bytes(b->local_ranks));
    if (error == 0) return ST_OK;
    return fail(ST_NO_MEMORY, "cannot reserve the control block of %d ranks, %lld bytes: %s%s",
                b->local_ranks, (long long)b->bytes, strerror(error), host_limit_remedy(error));
}

static int cores_here(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

status comm_control_block_create(int local_ranks, uint64_t job, int cores, comm_control_block **out)
{
    if (local_ranks < 1 || local_ranks > COMM_MAX_LOCAL) {
        return fail(ST_CONFIG_RANGE, "%d ranks on one host; there may be 1 to %d", local_ranks,
                    (int)COMM_MAX_LOCAL);
    }
    comm_control_block *b = calloc(1, sizeof(*b));
    if (b == NULL) return fail(ST_NO_MEMORY, "no memory for a control block");
    b->fd = -1;
    b->local_ranks = local_ranks;
    b->bytes = align_up(hot_bytes(local_ranks), BLOCK_PAGE) + area_bytes_of(local_ranks);
    status st;
    TRY_TO(unmap_block, file_make(b));
    TRY_TO(unmap_block, map(b));
    clock_calibrate(b->head);
    b->head->job = job;
    b->head->local_ranks = local_ranks;
    b->head->cores = cores > 0 ? cores : cores_here();
    b->head->total_bytes = (uint64_t)b->bytes;
    word_put(&b->head->magic, block_magic);
    *out = b;
    return ST_OK;
unmap_block:
    comm_control_block_unmap(b);
    return st;
}

// Checks the size of the file against its header before anything else in it is used.
static status file_check(comm_control_block *b)
{
    struct stat info;
    block_head head;
    if (fstat(b->fd, &info) != 0 || info.st_size < (off_t)sizeof(head)) {
        return fail(ST_DAMAGED, "descriptor %d is no control block of ranks", b->fd);
    }
    if (pread(b->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        head.magic != block_magic || head.local_ranks < 1 || head.local_ranks > COMM_MAX_LOCAL) {
        return fail(ST_DAMAGED, "descriptor %d is no control block of ranks: its head is not one",
                    b->fd);
    }
    b->local_ranks = head.local_ranks;
    b->bytes = align_up(hot_bytes(b->local_ranks), BLOCK_PAGE) + area_bytes_of(b->local_ranks);
    const int seals = fcntl(b->fd, F_GET_SEALS);
    if (info.st_size != b->bytes || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return fail(ST_DAMAGED,
                    "descriptor %d is a control block of %d ranks with %lld bytes, expected "
                    "%lld, sealed",
                    b->fd, b->local_ranks, (long long)info.st_size, (long long)b->bytes);
    }
    return ST_OK;
}

status comm_control_block_map(int fd, comm_control_block **out)
{
    TRY(fault_point("comm.control_block.map"));
    comm_control_block *b = calloc(1, sizeof(*b));
    if (b == NULL) return fail(ST_NO_MEMORY, "no memory for a control block");
    status st;
    b->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (b->fd < 0) {
        st = fail(ST_IO, "cannot take descriptor %d as a control block: %s%s", fd, strerror(errno),
                  host_limit_remedy(errno));
        goto unmap_block;
    }
    TRY_TO(unmap_block, file_check(b));
    TRY_TO(unmap_block, map(b));
    *out = b;
    return ST_OK;
unmap_block:
    comm_control_block_unmap(b);
    return st;
}

int comm_control_block_fd(const comm_control_block *b)
{
    return b->fd;
}

int comm_control_block_ranks(const comm_control_block *b)
{
    return b->local_ranks;
}

void comm_control_block_unmap(comm_control_block *b)
{
    if (b == NULL) return;
    if (b->head != NULL) (void)munmap(b->head, (size_t)b->bytes);
    if (b->fd >= 0) (void)close(b->fd);
    free(b);
}

void comm_control_block_abort(comm_control_block *b, status code, const char *text)
{
    block_failure_set(&b->head->failure, code, text);
}

// ---- slots --------------------------------------------------------------------------------------
status block_reserve(comm_control_block *b, const void *at, int64_t bytes)
{
    TRY(fault_point("comm.control_block.reserve"));
    const int64_t begin =
        ((const char *)at - (const char *)(void *)b->head) / BLOCK_PAGE * BLOCK_PAGE;
    const int64_t end = (const char *)at - (const char *)(void *)b->head + bytes;
    ASSERT(begin >= 0 && end <= b->bytes);
    const int error = posix_fallocate(b->fd, begin, end - begin);
    if (error == 0) return ST_OK;
    return fail(ST_NO_MEMORY, "no %lld bytes of shared memory for a group of ranks: %s%s",
                (long long)(end - begin), strerror(error), host_limit_remedy(error));
}

static status slot_make(comm_control_block *b, block_row *row, int64_t hot, int64_t bytes)
{
    const uint64_t whole = (uint64_t)align_up(bytes, BLOCK_PAGE);
    const uint64_t at = __atomic_fetch_add(&b->head->area_used, whole, __ATOMIC_ACQ_REL);
    if (at + whole > (uint64_t)b->area_bytes) {
        return fail(ST_UNSUPPORTED,
                    "the control block of %d ranks has no space for one more group of %lld "
                    "bytes; make fewer groups",
                    b->local_ranks, (long long)whole);
    }
    TRY(block_reserve(b, b->area + at, hot));
    row->offset = at;
    return ST_OK;
}

// Waits while another rank makes the slot. If that rank dies, the abort of the launcher ends this
// wait.
static status row_wait(comm_control_block *b, const block_row *row, uint32_t *state)
{
    const int64_t begin = system_ns();
    while ((*state = half_get(&row->state)) == 1) {
        TRY(block_failure_get(&b->head->failure));
        if (system_ns() - begin > INT64_C(10) * 1000000000) {
            return fail(ST_TIMEOUT, "another rank began to make a group 10 s ago and did not end");
        }
        (void)sched_yield();
    }
    return ST_OK;
}

status block_slot(comm_control_block *b, uint64_t key, uint32_t kind, int64_t hot, int64_t bytes,
                  void **out)
{
    for (int64_t i = 0; i < b->rows; i++) {
        block_row *row = &b->directory[((int64_t)(key & INT32_MAX) + i) & (b->rows - 1)];
        uint32_t state = 0;
        if (__atomic_compare_exchange_n(&row->state, &state, 1, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            row->key = key;
            row->kind = kind;
            const status st = slot_make(b, row, hot, bytes);
            half_put(&row->state, st == ST_OK ? 2 : 3);
            TRY(st);
            *out = b->area + row->offset;
            return ST_OK;
        }
        TRY(row_wait(b, row, &state));
        if (row->key != key || row->kind != kind) continue;
        if (state == 2 && row->offset + (uint64_t)bytes <= (uint64_t)b->area_bytes) {
            *out = b->area + row->offset;
            return ST_OK;
        }
        return fail(ST_NO_MEMORY, "another rank could not make this group: no shared memory");
    }
    return fail(ST_UNSUPPORTED, "the control block has no row left for a group; it has %lld",
                (long long)b->rows);
}

// ---- failures -----------------------------------------------------------------------------------
void block_failure_set(block_failure *f, status code, const char *text)
{
    ASSERT(code != ST_OK);
    uint32_t state = 0;
    if (!__atomic_compare_exchange_n(&f->state, &state, 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return;
    }
    char copy[BLOCK_TEXT] = {0};
    (void)snprintf(copy, sizeof(copy), "%s", text);
    memcpy(f->text, copy, sizeof(copy));
    half_put(&f->state, 2 + (uint32_t)code);
}

status block_failure_get(const block_failure *f)
{
    const uint32_t state = half_get(&f->state);
    if (state < 2) return ST_OK;
    const uint32_t code = state - 2;
    return fail(code > ST_OK && code < STATUS_COUNT ? (status)code : ST_INTERNAL, "%.*s",
                BLOCK_TEXT - 1, f->text);
}

// ---- names --------------------------------------------------------------------------------------
void block_name_put(rank_record *record, uint32_t hash, const char *text)
{
    block_name *n = &record->names[hash % BLOCK_NAMES];
    if (hash == 0 || text == NULL || half_get(&n->hash) == hash) return;
    uint32_t free_lock = 0;
    if (!__atomic_compare_exchange_n(&record->lock, &free_lock, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
        return; // another thread of this rank writes one; a name is not worth a wait
    }
    char copy[BLOCK_NAME_BYTES] = {0};
    (void)snprintf(copy, sizeof(copy), "%s", text);
    half_put(&n->hash, 0);
    words_copy_in(n->text, copy, sizeof(copy));
    half_put(&n->hash, hash);
    half_put(&record->lock, 0);
    // This comes last, so that a thread that found the lock taken sees a change and tries again.
    __atomic_fetch_add(&record->name_changes, 1, __ATOMIC_RELEASE);
}

void block_name_get(const rank_record *record, uint32_t hash, char out[BLOCK_NAME_BYTES])
{
    const block_name *n = &record->names[hash % BLOCK_NAMES];
    out[0] = '\0';
    if (hash == 0 || half_get(&n->hash) != hash) return;
    uint64_t copy[BLOCK_NAME_BYTES / 8];
    words_copy_out(copy, n->text, sizeof(copy));
    if (half_get(&n->hash) != hash) return;
    memcpy(out, copy, BLOCK_NAME_BYTES);
    out[BLOCK_NAME_BYTES - 1] = '\0';
    for (char *c = out; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ') *c = '?';
    }
}
