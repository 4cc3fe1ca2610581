// Measures the machine itself: arithmetic, memory, latency, frequency. These figures bound a step.
//
// Other programs can only make a machine look slower, so every figure is the best of a few tries.
#include "train/bench.h"

#include "base/rng.h"
#include "base/spin.h"

#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 64 };

static int64_t now_ns(const host *h)
{
    return h->api->monotonic_ns(h);
}

static status memory_take(int64_t bytes, void **out)
{
    *out = aligned_alloc(4096, (size_t)align_up(max_i64(bytes, 1), 4096));
    if (*out != NULL) return ST_OK;
    return fail(ST_NO_MEMORY, "no %lld bytes for a measurement of memory", (long long)bytes);
}

// Allocates copy buffers on huge pages, aligned to them, as a run's memory is (kernels/device.c).
// With small pages a copy is up to a tenth slower (Zen 4, 2026-11-22: 30.5 and 33.6 GB/s).
static status memory_take_huge(int64_t bytes, void **out)
{
    enum { HUGE_BYTES = 2 << 20 };
    if (bytes < HUGE_BYTES) return memory_take(bytes, out);
    const size_t whole = (size_t)align_up(bytes, HUGE_BYTES);
    *out = aligned_alloc(HUGE_BYTES, whole);
    if (*out == NULL) {
        return fail(ST_NO_MEMORY, "no %lld bytes for copies; --size takes fewer", (long long)bytes);
    }
    (void)madvise(*out, whole, MADV_HUGEPAGE); // a failure costs only some speed
    return ST_OK;
}

// ---- streams ------------------------------------------------------------------------------------

typedef enum stream_kind { SWEEP_READ, SWEEP_WRITE, SWEEP_COPY } stream_kind;

typedef struct stream {
    stream_kind kind;
    bool avx2;
    int threads;
    char *a, *b;           // copies go from a to b
    int64_t bytes, rounds; // bytes: per thread
    uint64_t sink[KERN_MAX_THREADS];
} stream;

// Keeps eight cache lines in flight; the sum keeps the compiler from removing the loads.
__attribute__((target("avx2"))) static uint64_t read_avx2(const char *from, int64_t bytes)
{
    __m256i sum[8];
    uint64_t words[4];
    for (int i = 0; i < 8; i++) sum[i] = _mm256_setzero_si256();
    for (int64_t at = 0; at + 256 <= bytes; at += 256) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            const __m256i *p = (const __m256i *)(const void *)(from + at + (int64_t)i * 32);
            sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(p));
        }
    }
    for (int i = 1; i < 8; i++) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
    memcpy(words, &sum[0], sizeof(words));
    return words[0] ^ words[1] ^ words[2] ^ words[3];
}

static uint64_t read_plain(const char *from, int64_t bytes)
{
    uint64_t sum[4] = {0}, word = 0;
    for (int64_t at = 0; at + 32 <= bytes; at += 32) {
        for (int i = 0; i < 4; i++) {
            memcpy(&word, from + at + (int64_t)i * 8, sizeof(word));
            sum[i] ^= word;
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}

static void stream_run(void *context, int64_t index, int thread)
{
    stream *s = context;
    (void)thread;
    char *a = s->a + index * s->bytes, *b = s->b + index * s->bytes;
    for (int64_t r = 0; r < s->rounds; r++) {
        if (s->kind == SWEEP_WRITE) {
            memset(a, (int)(r & 0x7f), (size_t)s->bytes);
        } else if (s->kind == SWEEP_COPY) {
            memcpy(b, a, (size_t)s->bytes);
        } else {
            s->sink[index] ^= s->avx2 ? read_avx2(a, s->bytes) : read_plain(a, s->bytes);
        }
        // Keeps the compiler from removing the next round as a repetition.
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory");
    }
}

enum { STREAM_TRIES = 4 };

// Bytes/s, the best of `tries` tries. Each thread has a part for itself, the same one in every
// round.
static double stream_speed(const host *h, const kern_context *on, stream *s, int tries)
{
    double best = 0.0;
    for (int i = 0; i <= tries; i++) { // the first try only touches the memory
        const int64_t begin = now_ns(h);
        kern_parallel_in(on, s->threads, stream_run, s);
        const double seconds = (double)(now_ns(h) - begin) / 1e9;
        const double moved = (double)s->bytes * (double)s->threads * (double)s->rounds *
                             (s->kind == SWEEP_COPY ? 2.0 : 1.0);
        if (i > 0 && seconds > 0.0 && moved / seconds > best) best = moved / seconds;
    }
    return best;
}

// Bytes/s of one kind. `bytes` counts all memory that it touches; copies go from one half to the
// other.
static double stream_measure(const host *h, const kern_context *on, stream_kind kind, char *memory,
                             int64_t bytes, int tries)
{
    static const int64_t enough_bytes = INT64_C(1) << 26; // a try moves at least this
    const int threads = kern_context_threads(on);
    const int64_t all = kind == SWEEP_COPY ? bytes / 2 : bytes;
    stream s = {.kind = kind,
                .avx2 = kern_machine_has_avx2(),
                .threads = threads,
                .a = memory,
                .bytes = max_i64(all / threads / 256 * 256, 256)};
    s.b = memory + s.bytes * threads;
    s.rounds = max_i64(1, enough_bytes / (s.bytes * threads));
    return stream_speed(h, on, &s, tries);
}

// Reads of memory that was never written would all read the system's single page of zeros.
static void stream_touch(const kern_context *on, void *memory, int64_t bytes)
{
    const int threads = kern_context_threads(on);
    stream s = {.kind = SWEEP_WRITE, .threads = threads, .a = memory, .rounds = 1};
    s.bytes = bytes / threads;
    s.b = s.a;
    kern_parallel_in(on, threads, stream_run, &s);
}

// The smallest size is 256 bytes a thread, twice that for copies.
static int64_t stream_bytes(int64_t bytes, int threads)
{
    return max_i64(bytes, 512 * (int64_t)threads);
}

// Opens a context that this thread leads: with all threads, or with one (as in a second stream).
static status kernels_lead(const kern_context *of, bool all, kern_context **out)
{
    TRY(kern_context_open(of, all ? 0 : 1, out));
    kern_context_lead(*out);
    return ST_OK;
}

// Measures all sizes with one number of threads, in memory that these threads touched first.
static status memory_rows(const host *h, const kern_context *of, bool all, int64_t largest,
                          train_machine *out)
{
    const int64_t sizes[] = {16 << 10, 256 << 10, 4 << 20, largest};
    const int threads = all ? kern_context_threads(of) : 1;
    void *memory = NULL;
    kern_context *on = NULL;
    TRY(memory_take(stream_bytes(largest, threads), &memory));
    const status st = kernels_lead(of, all, &on);
    if (st == ST_OK) stream_touch(on, memory, stream_bytes(largest, threads));
    for (int i = 0; i < COUNT_OF(sizes) && st == ST_OK; i++) {
        if (sizes[i] > largest) continue;
        train_memory_row *row = &out->memory[out->memory_count++];
        *row = (train_memory_row){.bytes = stream_bytes(sizes[i], threads), .threads = threads};
        row->read = stream_measure(h, on, SWEEP_READ, memory, row->bytes, STREAM_TRIES);
        row->write = stream_measure(h, on, SWEEP_WRITE, memory, row->bytes, STREAM_TRIES);
        row->copy = stream_measure(h, on, SWEEP_COPY, memory, row->bytes, STREAM_TRIES);
        out->copy_bytes_per_s = row->copy;
    }
    kern_context_close(on);
    free(memory);
    return st;
}

// ---- latency ------------------------------------------------------------------------------------

// Every line of `memory` holds the number of the next one, in one cycle through all lines (Sattolo
// 1986, doi:10.1016/0020-0190(86)90073-6), so no prefetcher can predict it.
static void chain_make(char *memory, int64_t lines)
{
    for (int64_t i = 0; i < lines; i++) memcpy(memory + i * LINE_BYTES, &i, sizeof(i));
    for (int64_t i = lines - 1; i > 0; i--) {
        const int64_t j = (int64_t)(rng_word(1, 2, (uint64_t)i) % (uint64_t)i);
        int64_t x, y;
        memcpy(&x, memory + i * LINE_BYTES, sizeof(x));
        memcpy(&y, memory + j * LINE_BYTES, sizeof(y));
        memcpy(memory + i * LINE_BYTES, &y, sizeof(y));
        memcpy(memory + j * LINE_BYTES, &x, sizeof(x));
    }
}

static double chain_time(const host *h, const char *memory, int64_t loads)
{
    enum { TRIES = 3 };
    double best = 1e30;
    int64_t at = 0;
    for (int i = 0; i <= TRIES; i++) {
        const int64_t begin = now_ns(h);
        for (int64_t k = 0; k < loads; k++) memcpy(&at, memory + at * LINE_BYTES, sizeof(at));
        __asm__ volatile("" : : "r"(at) : "memory");
        const double seconds = (double)(now_ns(h) - begin) / 1e9 / (double)loads;
        if (i > 0 && seconds < best) best = seconds;
    }
    return best;
}

static status latency_rows(const host *h, int64_t largest, train_machine *out)
{
    enum { LOADS = 200000 };
    void *memory = NULL;
    TRY(memory_take(max_i64(largest, 8 << 10), &memory));
    for (int64_t bytes = 8 << 10; bytes <= largest; bytes *= 4) {
        if (out->latency_count == TRAIN_MAX_SIZES) break;
        chain_make(memory, bytes / LINE_BYTES);
        train_latency_row *row = &out->latency[out->latency_count++];
        row->bytes = bytes;
        row->load_s = chain_time(h, memory, LOADS);
    }
    free(memory);
    return ST_OK;
}

// ---- cores --------------------------------------------------------------------------------------

// Dependent additions take one cycle each, so this counts actual cycles, not the nominal frequency.
static double frequency_seen(const host *h)
{
    enum { ROUNDS = 100000, ADDS = 64, TRIES = 5 };
    double best = 0.0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t x = 1;
        const int64_t begin = now_ns(h);
        for (int r = 0; r < ROUNDS; r++) {
            __asm__ volatile(".rept 64\n\tadd %0, %0\n\t.endr" : "+r"(x));
        }
        const double seconds = (double)(now_ns(h) - begin) / 1e9;
        if (seconds > 0.0 && (double)ROUNDS * ADDS / seconds > best) {
            best = (double)ROUNDS * ADDS / seconds;
        }
    }
    return best;
}

static void cpu_name(char out[64])
{
    unsigned r[4], top = 0, b = 0, c = 0, d = 0;
    memset(out, 0, 64);
    if (__get_cpuid(0x80000000u, &top, &b, &c, &d) == 0 || top < 0x80000004u) return;
    char name[49] = {0};
    for (unsigned i = 0; i < 3; i++) {
        if (__get_cpuid(0x80000002u + i, &r[0], &r[1], &r[2], &r[3]) == 0) return;
        memcpy(name + (size_t)i * 16, r, 16);
    }
    const char *begin = name + strspn(name, " ");
    size_t length = strlen(begin);
    while (length > 0 && begin[length - 1] == ' ') length--;
    memcpy(out, begin, length);
    // The name will be quoted in YAML and JSON.
    for (char *s = out; *s != '\0'; s++) {
        if (*s < ' ' || *s > '~' || *s == '"' || *s == '\\') *s = ' ';
    }
}

typedef struct barrier {
    _Atomic(int) here;
    int expected;
} barrier;

// Waits until a task runs on every thread, so that no thread runs two of them.
static void barrier_task(void *context, int64_t index, int thread)
{
    enum { SPINS = 10000 };
    barrier *b = context;
    (void)index;
    (void)thread;
    atomic_fetch_add(&b->here, 1);
    for (int64_t i = 0; atomic_load(&b->here) < b->expected; i++) {
        if (i < SPINS) {
            spin_pause();
        } else {
            (void)sched_yield(); // the other thread has no core
        }
    }
}

// Measures the time from handing out one task per thread until all tasks have arrived and ended.
static status barrier_time(const host *h, const kern_context *of, double *out)
{
    enum { TIMES = 2001 };
    double *seconds = malloc(TIMES * sizeof(*seconds));
    if (seconds == NULL) return fail(ST_NO_MEMORY, "no memory for %d times", (int)TIMES);
    kern_context *on = NULL;
    const status st = kernels_lead(of, true, &on);
    for (int i = 0; i < TIMES && st == ST_OK; i++) {
        barrier b = {.expected = kern_context_threads(on)};
        const int64_t begin = now_ns(h);
        kern_parallel_in(on, b.expected, barrier_task, &b);
        seconds[i] = (double)(now_ns(h) - begin) / 1e9;
    }
    if (st == ST_OK) *out = train_time_of(seconds, TIMES).median_s;
    kern_context_close(on);
    free(seconds);
    return st;
}

typedef struct busy {
    const host *h;
    barrier all;
    _Atomic(int64_t) permille; // added over the threads
} busy;

// Keeps a core busy for a while, and adds the share of that time in which the thread had it.
static void busy_task(void *context, int64_t index, int thread)
{
    enum { BUSY_NS = 300000000 };
    busy *b = context;
    struct timespec from, to;
    barrier_task(&b->all, index, thread);
    const int64_t begin = now_ns(b->h);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    while (now_ns(b->h) - begin < BUSY_NS) spin_pause();
    const int64_t wall = now_ns(b->h) - begin;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    const int64_t used = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
    atomic_fetch_add(&b->permille, used * 1000 / max_i64(wall, 1));
}

// Counts the threads of other programs that want to run: all who do have equal shares of the cores.
static status others_count(const host *h, const kern_context *of, train_machine *out)
{
    busy b = {.h = h};
    kern_context *on = NULL;
    if (h->api != host_real()->api) return ST_OK; // a simulated host has no other programs
    TRY(kernels_lead(of, true, &on));
    const int own = b.all.expected = kern_context_threads(on);
    kern_parallel_in(on, own, busy_task, &b);
    kern_context_close(on);
    const double share = (double)atomic_load(&b.permille) / 1000.0 / own;
    if (share > 0.0 && own >= out->cores) {
        out->other_threads = (int)fmax(0.0, round((double)out->cores / share) - own);
    }
    return ST_OK;
}

static int64_t system_number(int name)
{
    const long value = sysconf(name);
    return value > 0 ? (int64_t)value : 0;
}

static void facts_of_system(const host *h, train_machine *out)
{
    static const int caches[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                 _SC_LEVEL3_CACHE_SIZE};
    cpu_set_t set;
    cpu_name(out->cpu);
    for (int i = 0; i < COUNT_OF(caches); i++) out->cache_bytes[i] = system_number(caches[i]);
    if (h->api == host_real()->api) { // a simulated host has no such files
        out->memory_bytes = system_number(_SC_PHYS_PAGES) * system_number(_SC_PAGESIZE);
    }
    out->cores = kern_core_count();
    out->hardware_threads = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static status peaks(const host *h, const kern_context *kernels, train_machine *out)
{
    enum { LOOPS = 5 };
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16};
    const int threads = kern_context_threads(kernels);
    double one = 0.0;
    for (int k = 0; k < COUNT_OF(types); k++) {
        for (int i = 0; i < LOOPS; i++) {
            const double flops = kern_peak_flops(kernels, 0, types[k]);
            if (flops > out->loop_flops[k]) out->loop_flops[k] = flops;
        }
        TRY(train_bench_gemm(h, kernels, types[k], &out->product_flops[k]));
    }
    for (int i = 0; i < LOOPS && threads > 1; i++) {
        const double flops = kern_peak_flops(kernels, 1, DTYPE_F32);
        if (flops > one) one = flops;
    }
    out->thread_share = one > 0.0 ? out->loop_flops[0] / one / (double)threads : 1.0;
    return ST_OK;
}

// Four times the last-level cache, but no more memory than the machine can spare.
static int64_t largest_buffer(const host *h)
{
    const int64_t last =
        max_i64(system_number(_SC_LEVEL3_CACHE_SIZE), system_number(_SC_LEVEL2_CACHE_SIZE));
    const int64_t wanted = max_i64(INT64_C(64) << 20, min_i64(4 * last, INT64_C(512) << 20));
    const int64_t available = host_memory_bytes(h);
    return available > 0 ? min_i64(wanted, available / 4) : wanted;
}

status train_machine_measure(const host *h, const kern_context *kernels, int64_t largest_bytes,
                             train_machine *out)
{
    memset(out, 0, sizeof(*out));
    out->level = kern_context_level(kernels);
    out->threads = kern_context_threads(kernels);
    facts_of_system(h, out);
    const int64_t largest = largest_bytes > 0 ? largest_bytes : largest_buffer(h);
    out->frequency_hz = frequency_seen(h);
    TRY(others_count(h, kernels, out));
    TRY(peaks(h, kernels, out));
    if (out->threads > 1) TRY(memory_rows(h, kernels, false, largest, out));
    TRY(memory_rows(h, kernels, true, largest, out));
    TRY(latency_rows(h, largest, out));
    return barrier_time(h, kernels, &out->barrier_s);
}

// ---- copies -------------------------------------------------------------------------------------
status train_copy_open(const host *h, const kern_context *kernels, int64_t largest_bytes,
                       train_copy *out)
{
    const int64_t wanted = largest_bytes > 0 ? largest_bytes : largest_buffer(h);
    train_copy c = {.h = h, .kernels = kernels};
    kern_context *on = NULL;
    c.bytes = stream_bytes(wanted, kern_context_threads(kernels));
    TRY(memory_take_huge(c.bytes, &c.memory));
    const status st = kernels_lead(kernels, true, &on);
    if (st != ST_OK) {
        free(c.memory);
        return st;
    }
    stream_touch(on, c.memory, c.bytes);
    kern_context_close(on);
    *out = c;
    return ST_OK;
}

// Opens threads for this call alone: leading them binds the caller to a core, and the caller has
// other work between calls.
status train_copy_run(const train_copy *c, int tries, double *bytes_per_s)
{
    kern_context *on = NULL;
    TRY(kernels_lead(c->kernels, true, &on));
    *bytes_per_s = stream_measure(c->h, on, SWEEP_COPY, c->memory, c->bytes, tries);
    kern_context_close(on);
    return ST_OK;
}

void train_copy_close(train_copy *c)
{
    free(c->memory);
    c->memory = NULL;
}

status train_machine_copy(const host *h, const kern_context *kernels, int64_t largest_bytes,
                          double *bytes_per_s)
{
    train_copy c;
    TRY(train_copy_open(h, kernels, largest_bytes, &c));
    const status st = train_copy_run(&c, STREAM_TRIES, bytes_per_s);
    train_copy_close(&c);
    return st;
}
