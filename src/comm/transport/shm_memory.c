// Regions: memory of a rank that its peers read and write as their own.
//
// A region is a memfd, fully reserved and sealed. Peers find its file descriptor in the owner's
// record and open it through /proc. They refuse it unless it is a sealed memfd of the size that the
// record states, because the descriptor may have been reused. A mapping is kept until the region is
// destroyed, which changes its generation. Threads of one process use the owner's address.
//
// Memory of a GPU is a region too (shm_region_share): its record holds a handle of the driver
// instead of a file descriptor. The driver forbids to free memory that another process has open, so
// ranks count who has a region open, and the owner waits for them before it gives it back.
//
// Large regions ask for huge pages: a GEMM over 4 KiB pages misses the TLB, and a peer has 512
// times as many page faults. Systems rarely give huge pages to shared memory by themselves
// (shmem_enabled is "never"), but MADV_COLLAPSE of Linux 6.1 makes them from pages that exist.
// Without huge pages the run is slower.
#include "comm/transport/shm.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE // glibc's headers before 2.37
#    define MADV_COLLAPSE 25
#endif

enum { HUGE_BYTES = 2 << 20 };

// Maps the file shared and writable, at an address aligned for huge pages. Fails as mmap does.
static void *map_shared(int fd, int64_t bytes)
{
    const size_t size = (size_t)bytes;
    if (bytes < HUGE_BYTES) return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *reserved = mmap(NULL, size + HUGE_BYTES, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return MAP_FAILED;
    const size_t before = (size_t)(-(uintptr_t)reserved % HUGE_BYTES);
    void *at = mmap(reserved + before, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    const int error = errno;
    (void)munmap(reserved, at != MAP_FAILED ? before : size + HUGE_BYTES);
    if (at != MAP_FAILED) (void)munmap(reserved + before + size, HUGE_BYTES - before);
    errno = error;
    return at;
}

// Reserves the whole file, in huge pages if possible. Returns 0 or an errno.
static int memory_reserve(int fd, void *at, int64_t bytes)
{
    const int64_t huge = bytes / HUGE_BYTES * HUGE_BYTES;
    for (int64_t i = 0; i < huge; i += HUGE_BYTES) {
        const int error = posix_fallocate(fd, i, 1); // the page that it is made of
        if (error != 0) return error;
    }
    if (huge > 0) (void)madvise(at, (size_t)huge, MADV_COLLAPSE); // a wish
    return posix_fallocate(fd, 0, bytes);
}

static status memory_make(int64_t bytes, comm_pages *out)
{
    TRY(fault_point("comm.shm.region"));
    const int fd = memfd_create("trireme-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fail(ST_NO_MEMORY, "cannot make shared memory: %s%s", strerror(errno),
                    host_limit_remedy(errno));
    const int error = ftruncate(fd, bytes) != 0                                  ? errno
                      : fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0 ? errno
                                                                                 : 0;
    void *at = MAP_FAILED;
    if (error == 0) at = map_shared(fd, bytes);
    if (at == MAP_FAILED) {
        const int cause = error != 0 ? error : errno;
        const status st = fail(ST_NO_MEMORY, "cannot make %lld bytes of shared memory: %s%s",
                               (long long)bytes, strerror(cause), host_limit_remedy(cause));
        (void)close(fd);
        return st;
    }
    const int reserve_error = memory_reserve(fd, at, bytes);
    if (reserve_error != 0) {
        const status st =
            fail(ST_NO_MEMORY, "no %lld bytes of shared memory are free: %s%s", (long long)bytes,
                 strerror(reserve_error), host_limit_remedy(reserve_error));
        (void)munmap(at, (size_t)bytes);
        (void)close(fd);
        return st;
    }
    *out = (comm_pages){.at = at, .bytes = bytes, .fd = fd};
    return ST_OK;
}

status shm_pages_make(int64_t bytes, comm_pages *out)
{
    return memory_make(align_up(max_i64(bytes, 1), BLOCK_PAGE), out);
}

void shm_pages_free(const comm_pages *pages)
{
    (void)munmap(pages->at, (size_t)pages->bytes);
    (void)close(pages->fd);
}

// Takes a number for a region; its memory is not there yet.
static status region_take(comm_link *link, int64_t bytes, int32_t *out)
{
    int32_t g = 0;
    (void)pthread_mutex_lock(&link->lock);
    while (g < BLOCK_REGIONS && link->regions[g].bytes != 0) g++;
    if (g < BLOCK_REGIONS) link->regions[g].bytes = bytes; // taken; at stays NULL until it is there
    (void)pthread_mutex_unlock(&link->lock);
    if (g == BLOCK_REGIONS) {
        return fail(ST_UNSUPPORTED, "a rank may have %d pieces of shared memory",
                    (int)BLOCK_REGIONS);
    }
    *out = g;
    return ST_OK;
}

// Shows the region to the peers; pages NULL: gives its number back.
static void region_show(comm_link *link, int32_t g, const comm_pages *pages)
{
    (void)pthread_mutex_lock(&link->lock);
    shm_region *r = &link->regions[g];
    *r = (shm_region){0};
    if (pages != NULL) {
        *r = (shm_region){.at = pages->at, .bytes = pages->bytes, .fd = pages->fd};
        if (g >= link->region_count) __atomic_store_n(&link->region_count, g + 1, __ATOMIC_RELEASE);
        block_region *shown = &link->record->regions[g];
        shown->fd = pages->fd;
        shown->bytes = (uint64_t)pages->bytes;
        shown->at = (uint64_t)(uintptr_t)pages->at;
        half_put(&shown->generation, shown->generation + 1);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

status shm_region_create(comm_link *link, int64_t bytes, int32_t *region, void **at)
{
    comm_pages pages;
    int32_t g = 0;
    TRY(region_take(link, align_up(max_i64(bytes, 1), BLOCK_PAGE), &g));
    const status st = shm_pages_make(bytes, &pages);
    region_show(link, g, st == ST_OK ? &pages : NULL);
    TRY(st);
    *region = g;
    *at = pages.at;
    return ST_OK;
}

status shm_region_join(comm_link *link, const comm_pages *pages, int32_t *region)
{
    TRY(region_take(link, pages->bytes, region));
    region_show(link, *region, pages);
    return ST_OK;
}

// ---- memory of a GPU ----------------------------------------------------------------------------
static void maps_drop(comm_link *link, bool on_device);

status shm_region_share(comm_link *link, device *d, void *memory, int64_t bytes, int32_t *region)
{
    device_share share;
    int32_t g = 0;
    TRY(fault_point("comm.shm.share"));
    TRY(d->api->peers->share(d, memory, bytes, &share));
    TRY(region_take(link, bytes, &g));
    (void)pthread_mutex_lock(&link->lock);
    link->regions[g] = (shm_region){.at = memory, .bytes = bytes, .fd = -1, .d = d};
    if (g >= link->region_count) __atomic_store_n(&link->region_count, g + 1, __ATOMIC_RELEASE);
    block_region *shown = &link->record->regions[g];
    shown->fd = -1;
    shown->bytes = (uint64_t)bytes;
    shown->at = share.address;
    shown->share = share;
    half_put(&shown->users, 0);
    half_put(&shown->on_device, 1);
    half_put(&shown->generation, shown->generation + 1);
    if (link->peering == NULL) link->peering = d;
    (void)pthread_mutex_unlock(&link->lock);
    *region = g;
    return ST_OK;
}

// Gives up the memory of peers, then waits until they have given up this rank's. They do so when
// their executors end, or when their processes do; a rank that hangs is not waited for very long.
static void device_region_end(comm_link *link, int32_t region)
{
    enum { MOST_MS = 10000, MOST_MS_AFTER_FAILURE = 2000 };
    block_region *shown = &link->record->regions[region];
    const host *h = link->config.h;
    const int64_t began = h->api->monotonic_ns(h);
    maps_drop(link, true); // another region's are opened again when they are needed
    link->peering = NULL;
    for (int g = 0; g < BLOCK_REGIONS; g++) {
        if (link->regions[g].d != NULL) link->peering = link->regions[g].d;
    }
    while (half_get(&shown->users) != 0) {
        const bool failed = half_get(&link->control_block->head->failure.state) != 0 ||
                            half_get(&link->record->failure.state) != 0;
        const int64_t most = failed ? MOST_MS_AFTER_FAILURE : MOST_MS;
        if (h->api->monotonic_ns(h) - began > most * 1000000) break;
        h->api->sleep_ns(h, 1000000);
    }
    half_put(&shown->on_device, 0);
}

status shm_peer_check(comm_port *port, int rank, device *d)
{
    comm_link *link = port->link;
    const rank_record *record =
        rank_record_of(link->control_block, shm_local(shm_port_of(port), rank));
    for (int g = 0; g < BLOCK_REGIONS; g++) {
        const block_region *shown = &record->regions[g];
        if ((half_get(&shown->generation) & 1) == 0 || half_get(&shown->on_device) == 0) continue;
        const device_share share = shown->share;
        TRY(d->api->peers->check(d, &share));
    }
    return ST_OK;
}

void shm_region_leave(comm_link *link, int32_t region, comm_pages *out)
{
    ASSERT(region >= 0 && region < BLOCK_REGIONS);
    (void)pthread_mutex_lock(&link->lock);
    shm_region *r = &link->regions[region];
    ASSERT(r->at != NULL);
    half_put(&link->record->regions[region].generation,
             link->record->regions[region].generation + 1);
    *out = (comm_pages){.at = r->at, .bytes = r->bytes, .fd = r->fd};
    *r = (shm_region){0};
    (void)pthread_mutex_unlock(&link->lock);
}

void shm_region_destroy(comm_link *link, int32_t region)
{
    comm_pages gone;
    shm_region_leave(link, region, &gone);
    if (gone.fd < 0) {
        device_region_end(link, region);
        return;
    }
    shm_pages_free(&gone);
}

comm_place shm_locate(const comm_link *link, const void *at, int64_t bytes)
{
    if (at == NULL) return (comm_place){.region = COMM_NOWHERE};
    const uintptr_t address = (uintptr_t)at;
    const int count = __atomic_load_n(&link->region_count, __ATOMIC_ACQUIRE);
    for (int g = 0; g < count; g++) {
        const shm_region *r = &link->regions[g];
        const uintptr_t begin = (uintptr_t)r->at;
        if (r->at == NULL || address < begin || address - begin > (uintptr_t)r->bytes) continue;
        if (bytes > r->bytes - (int64_t)(address - begin)) continue;
        return (comm_place){.region = g, .offset = (int64_t)(address - begin)};
    }
    return (comm_place){.region = COMM_PRIVATE};
}

// ---- of peers -----------------------------------------------------------------------------------
static status peer_open(const rank_record *record, int32_t region, int64_t bytes, int *out)
{
    TRY(fault_point("comm.shm.map"));
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", record->pid, record->regions[region].fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail(errno == ENOENT ? ST_PEER_LOST : ST_IO,
                    "cannot open the shared memory of rank %d (%s): %s%s", record->rank, path,
                    strerror(errno), host_limit_remedy(errno));
    }
    struct stat info;
    const int seals = fcntl(fd, F_GET_SEALS), wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fstat(fd, &info) != 0 || seals < 0 || (seals & wanted) != wanted || info.st_size != bytes) {
        (void)close(fd);
        return fail(ST_PEER_LOST,
                    "the shared memory of rank %d (%s) is not the %lld sealed bytes that "
                    "it announced: it is gone, or another process has its number",
                    record->rank, path, (long long)bytes);
    }
    *out = fd;
    return ST_OK;
}

static void map_drop(shm_map *m, rank_record *record, int32_t region, bool here)
{
    if (m->at == NULL) return;
    if (m->on != NULL) {
        m->on->api->peers->close(m->on, &m->share, here, m->at);
        (void)__atomic_fetch_sub(&record->regions[region].users, 1, __ATOMIC_SEQ_CST);
    } else if (!here) {
        (void)munmap(m->at, (size_t)m->bytes);
    }
    *m = (shm_map){0};
}

// Opens memory of a peer's GPU. The owner waits for `users` after it has changed the generation.
static status peer_device_map(comm_link *link, rank_record *record, int32_t region, shm_map *m)
{
    block_region *shown = &record->regions[region];
    const bool here = record->pid == link->record->pid;
    const uint32_t generation = half_get(&shown->generation);
    device *d = link->peering;
    void *at = NULL;
    ASSERT(d != NULL); // this rank's own memory is a region, or it would not post
    map_drop(m, record, region, here);
    (void)__atomic_fetch_add(&shown->users, 1, __ATOMIC_SEQ_CST);
    const device_share share = shown->share;
    status st = ST_OK;
    if (half_get(&shown->generation) != generation || (generation & 1) == 0) {
        st = fail(ST_PEER_LOST, "rank %d gave its GPU's memory back while it was in use",
                  record->rank);
    }
    if (st == ST_OK) st = d->api->peers->open(d, &share, here, &at);
    if (st != ST_OK) {
        (void)__atomic_fetch_sub(&shown->users, 1, __ATOMIC_SEQ_CST);
        return st;
    }
    m->at = at;
    m->bytes = share.bytes;
    m->on = d;
    m->share = share;
    half_put(&m->generation, generation);
    return ST_OK;
}

static status peer_map(comm_link *link, rank_record *record, int32_t region, shm_map *m)
{
    if (half_get(&record->regions[region].on_device) != 0) {
        return peer_device_map(link, record, region, m);
    }
    const block_region *shown = &record->regions[region];
    const uint32_t generation = half_get(&shown->generation);
    const int64_t bytes = (int64_t)shown->bytes;
    if ((generation & 1) == 0) {
        return fail(ST_PEER_LOST, "rank %d gave its shared memory back while it was in use",
                    record->rank);
    }
    void *at = (void *)(uintptr_t)shown->at;
    if (record->pid != link->record->pid) {
        int fd = -1;
        TRY(peer_open(record, region, bytes, &fd));
        at = map_shared(fd, bytes);
        const int error = errno;
        (void)close(fd);
        if (at == MAP_FAILED) {
            return fail(ST_NO_MEMORY, "cannot map %lld bytes of rank %d: %s", (long long)bytes,
                        record->rank, strerror(error));
        }
        if (m->at != NULL) (void)munmap(m->at, (size_t)m->bytes);
        (void)madvise(at, (size_t)bytes,
                      MADV_POPULATE_WRITE); // a wish: the faults now, not in a step
    }
    m->at = at;
    m->bytes = bytes;
    half_put(&m->generation, generation);
    return ST_OK;
}

status shm_address(comm_port *port, int rank, comm_place place, int64_t bytes, void **out)
{
    comm_link *link = port->link;
    const int local = shm_local(shm_port_of(port), rank);
    rank_record *record = rank_record_of(link->control_block, local);
    if (place.region < 0 || place.region >= BLOCK_REGIONS || place.offset < 0) {
        return fail(ST_INTERNAL,
                    "rank %d shows a buffer at region %d offset %lld, which is no place",
                    record->rank, place.region, (long long)place.offset);
    }
    const bool on_device = half_get(&record->regions[place.region].on_device) != 0;
    if (on_device != (port->peer != NULL)) {
        return fail(ST_DIVERGED, "rank %d shows a buffer in %s memory, which rank %d does not",
                    record->rank, on_device ? "its GPU's" : "host", link->record->rank);
    }
    shm_map *m = &link->maps[local * BLOCK_REGIONS + place.region];
    if (half_get(&m->generation) != half_get(&record->regions[place.region].generation)) {
        status st = ST_OK;
        (void)pthread_mutex_lock(&link->mapping);
        // Another thread of this rank may have mapped the region meanwhile, and may be reading
        // there.
        if (half_get(&m->generation) != half_get(&record->regions[place.region].generation)) {
            st = peer_map(link, record, place.region, m);
        }
        (void)pthread_mutex_unlock(&link->mapping);
        TRY(st);
    }
    if (bytes > m->bytes || place.offset > m->bytes - bytes) {
        return fail(ST_INTERNAL, "rank %d shows %lld bytes at %lld of a region of %lld",
                    record->rank, (long long)bytes, (long long)place.offset, (long long)m->bytes);
    }
    *out = (char *)m->at + place.offset;
    return ST_OK;
}

static void maps_drop(comm_link *link, bool on_device)
{
    for (int l = 0; l < link->control_block->local_ranks; l++) {
        rank_record *record = rank_record_of(link->control_block, l);
        for (int g = 0; g < BLOCK_REGIONS && link->maps != NULL; g++) {
            shm_map *m = &link->maps[l * BLOCK_REGIONS + g];
            if (on_device && m->on == NULL) continue;
            map_drop(m, record, g, record->pid == link->record->pid);
        }
    }
}

void shm_maps_drop(comm_link *link)
{
    maps_drop(link, false);
    for (int g = 0; g < BLOCK_REGIONS; g++) {
        if (link->regions[g].at != NULL) shm_region_destroy(link, g);
    }
}
