// Finds the cores and pins threads to them: the only file that uses hwloc.
//
// The hyperthreads of a core share its multipliers, so a pool for GEMMs uses one thread per core.
// The affinity of the process (taskset, a container, a launcher) is respected: only cores inside it
// count.
#include "kernels/cpu/pool.h"

#include <hwloc.h>
#include <stdlib.h>

struct pool_pins {
    hwloc_topology_t topology;
    int count;
    hwloc_bitmap_t before; // of the leader; NULL: it was not pinned here
    hwloc_bitmap_t sets[KERN_MAX_THREADS];
};

// Loads the topology down to cores, without caches and devices. NULL: hwloc failed.
static hwloc_topology_t topology_load(void)
{
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0) return NULL;
    hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(t) == 0) return t;
    hwloc_topology_destroy(t);
    return NULL;
}

// Returns the number of cores that this process may use and, if `sets` is given, the first allowed
// hardware thread of each as a bitmap that the caller frees.
static int cores_list(hwloc_topology_t t, hwloc_bitmap_t *sets)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (allowed == NULL) return 0;
    if (hwloc_get_cpubind(t, allowed, HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(t));
    }
    int count = 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core)) != NULL) {
        if (count == KERN_MAX_THREADS) break;
        if (!hwloc_bitmap_intersects(core->cpuset, allowed)) continue;
        if (sets != NULL) {
            hwloc_bitmap_t set = hwloc_bitmap_alloc();
            if (set == NULL) break;
            hwloc_bitmap_and(set, core->cpuset, allowed);
            hwloc_bitmap_singlify(set);
            sets[count] = set;
        }
        count++;
    }
    hwloc_bitmap_free(allowed);
    return count;
}

int kern_core_count(void)
{
    hwloc_topology_t t = topology_load();
    if (t == NULL) return 1;
    const int count = cores_list(t, NULL);
    hwloc_topology_destroy(t);
    return count > 0 ? count : 1;
}

int kern_cores_shared(int processes)
{
    const int own = kern_core_count();
    hwloc_topology_t t = processes > 1 ? topology_load() : NULL;
    if (t == NULL) return own;
    const int all = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
    hwloc_topology_destroy(t);
    const int64_t most = (int64_t)own * processes;
    return all > 0 && all < most ? all : (int)min_i64(most, INT32_MAX);
}

void kern_cores_divide(int part, int parts)
{
    ASSERT(part >= 0 && part < parts);
    hwloc_topology_t t = topology_load();
    hwloc_bitmap_t sets[KERN_MAX_THREADS], mine = hwloc_bitmap_alloc();
    const int count = t != NULL && mine != NULL ? cores_list(t, sets) : 0;
    const int first = count * part / parts;
    const int end = first < count * (part + 1) / parts ? count * (part + 1) / parts : first + 1;
    for (int i = 0; i < count; i++) {
        if (i >= first && i < end) hwloc_bitmap_or(mine, mine, sets[i]);
        hwloc_bitmap_free(sets[i]);
    }
    // If the system refuses, the process is slower but no result changes.
    if (count > 0) (void)hwloc_set_cpubind(t, mine, HWLOC_CPUBIND_PROCESS);
    if (mine != NULL) hwloc_bitmap_free(mine);
    if (t != NULL) hwloc_topology_destroy(t);
}

pool_pins *pool_pins_create(int threads)
{
    hwloc_topology_t t = topology_load();
    if (t == NULL) return NULL;
    pool_pins *pins = calloc(1, sizeof(*pins));
    if (pins == NULL) {
        hwloc_topology_destroy(t);
        return NULL;
    }
    pins->topology = t;
    pins->count = cores_list(t, pins->sets);
    if (pins->count == threads) return pins;
    pool_pins_destroy(pins);
    return NULL;
}

void pool_pins_apply(const pool_pins *pins, int thread)
{
    ASSERT(thread >= 0 && thread < pins->count);
    // If the system refuses (a container's policy), the pool is slower but no result changes, so
    // nothing is reported.
    (void)hwloc_set_cpubind(pins->topology, pins->sets[thread], HWLOC_CPUBIND_THREAD);
}

void pool_pins_lead(pool_pins *pins)
{
    if (pins->before != NULL) return; // it leads already
    pins->before = hwloc_bitmap_alloc();
    if (pins->before == NULL) return;
    if (hwloc_get_cpubind(pins->topology, pins->before, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_free(pins->before);
        pins->before = NULL;
        return;
    }
    pool_pins_apply(pins, 0);
}

void pool_pins_destroy(pool_pins *pins)
{
    if (pins == NULL) return;
    if (pins->before != NULL) {
        (void)hwloc_set_cpubind(pins->topology, pins->before, HWLOC_CPUBIND_THREAD);
        hwloc_bitmap_free(pins->before);
    }
    for (int i = 0; i < pins->count; i++) hwloc_bitmap_free(pins->sets[i]);
    hwloc_topology_destroy(pins->topology);
    free(pins);
}
