/* A small libnvidia-ml for tests: it exports the symbols that pynvml looks up and answers from a
 * text file, so that the real pynvml can be shown any machine.
 *
 * The file is named by the environment variable TEST_NVML and read again at every call, so a test
 * may change a card while a program runs. One "key = value" a line, '#' begins a comment:
 *
 *     driver = 570.86.10        version of the driver
 *     init = 18                 nvmlReturn_t of nvmlInitWithFlags (default 0, success)
 *     count = 2                 number of cards (default 0)
 *     0.name = NVIDIA H100      everything about card 0; all have defaults
 *     0.uuid = GPU-...
 *     0.total_mib, 0.used_mib, 0.reserved_mib, 0.utilization, 0.capability = 9.0, 0.compute_mode
 *     0.temperature, 0.power_mw, 0.limit_mw, 0.minor, 0.pci = 00000000:3B:00.0
 *     0.processes = 77:4096 78  process id, and its MiB unless the driver cannot say
 *     0.mig = 1                 0 or 1; left out, the card cannot be split (NOT_SUPPORTED)
 *     0.slices = 9728 19968     the MiB of each MIG slice
 *     0.links = 1 1 s -         what each NVLink leads to: a card, a switch, nothing (down)
 *     topology.0.1 = 40         nvmlGpuTopologyLevel_t of two cards, the lower index first; for
 *     topology = 50             all pairs (default 50); -1 is NOT_SUPPORTED
 *     0.error = 15              nvmlReturn_t of every call about card 0
 *     0.error_after_name = 15   the same, but handle, UUID and name still answer
 *     0.silent = power links    what card 0 does not tell (NOT_SUPPORTED): any of memory,
 *                               utilization, capability, temperature, power, limit, pci, minor,
 *                               processes, links
 *
 * Compiled with -DOLD_DRIVER it lacks the functions that drivers before 450 lack, and with
 * -DNEW_DRIVER those that CUDA 14 takes away.
 * Struct layouts and codes: the NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct device { unsigned index; int slice; } *nvmlDevice_t; /* slice: -1 is the card */
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       TOO_SMALL = 7 };
enum { MAX_DEVICES = 64, MAX_SLICES = 7, LINE = 256 };

static struct device devices[MAX_DEVICES];
static int users; /* nvmlInit calls not yet matched by nvmlShutdown */

static char *trimmed(char *text) {
    text += strspn(text, " \t");
    text[strcspn(text, "#\r\n")] = '\0';
    for (size_t n = strlen(text); n && strchr(" \t", text[n - 1]); n--) text[n - 1] = '\0';
    return text;
}

/* Copies the value of `key` to `out` and returns 1, or returns 0 and leaves `out` as it is. */
static int lookup(const char *key, char out[LINE]) {
    const char *path = getenv("TEST_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE];
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = '\0';
        if (strcmp(trimmed(line), key) != 0) continue;
        strcpy(out, trimmed(equals + 1));
        found = 1;
    }
    fclose(file);
    return found;
}

static long number(const char *key, long fallback) {
    char value[LINE];
    return lookup(key, value) ? strtol(value, NULL, 10) : fallback;
}

static int card_text(nvmlDevice_t device, const char *field, char out[LINE]) {
    char key[LINE];
    snprintf(key, sizeof key, "%u.%s", device->index, field);
    return lookup(key, out);
}

static long card_number(nvmlDevice_t device, const char *field, long fallback) {
    char value[LINE];
    return card_text(device, field, value) ? strtol(value, NULL, 10) : fallback;
}

/* The word of a card's field at `place`; 0 when there are not so many. */
static int card_word(nvmlDevice_t device, const char *field, unsigned place, char out[LINE]) {
    char value[LINE], *rest = value, *word = NULL;
    if (!card_text(device, field, value)) return 0;
    for (unsigned n = 0; n <= place; n++)
        if (!(word = strtok_r(rest, " ", &rest))) return 0;
    memmove(out, word, strlen(word) + 1);
    return 1;
}

static unsigned card_words(nvmlDevice_t device, const char *field) {
    char ignored[LINE];
    unsigned count = 0;
    while (card_word(device, field, count, ignored)) count++;
    return count;
}

static int is_silent(nvmlDevice_t device, const char *topic) {
    char word[LINE];
    for (unsigned n = 0; card_word(device, "silent", n, word); n++)
        if (strcmp(word, topic) == 0) return 1;
    return 0;
}

static nvmlReturn_t copy(const char *value, char *out, unsigned room) {
    if (strlen(value) >= room) return TOO_SMALL;
    strcpy(out, value);
    return SUCCESS;
}

/* What every call about a card answers first; `late` calls come after the name. */
static nvmlReturn_t state(nvmlDevice_t device, int late) {
    long error = card_number(device, "error", SUCCESS);
    if (!users) return UNINITIALIZED;
    if (!error && late) error = card_number(device, "error_after_name", SUCCESS);
    return (nvmlReturn_t)error;
}

#define ANSWER_IF_OK(device, late)                        \
    do {                                                  \
        nvmlReturn_t failed = state(device, late);        \
        if (failed) return failed;                        \
    } while (0)

#define TELL(device, topic)                               \
    do {                                                  \
        ANSWER_IF_OK(device, 1);                          \
        if (is_silent(device, topic))                     \
            return NOT_SUPPORTED;                         \
    } while (0)

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    nvmlReturn_t result = (nvmlReturn_t)number("init", SUCCESS);
    (void)flags;
    if (!result) users++;
    return result;
}

/* torch counts cards by these two older names. */
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static char text[LINE];
    snprintf(text, sizeof text, "test NVML code %d", result);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned room) {
    char value[LINE] = "570.86.10";
    if (!users) return UNINITIALIZED;
    lookup("driver", value);
    return copy(value, out, room);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (!users) return UNINITIALIZED;
    *count = (unsigned)number("count", 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    unsigned count = 0;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&count);
    if (result) return result;
    if (index >= count || index >= MAX_DEVICES) return INVALID_ARGUMENT;
    devices[index] = (struct device){index, -1};
    *device = &devices[index];
    return state(*device, 0);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned room) {
    char value[LINE];
    ANSWER_IF_OK(device, 0);
    if (device->slice >= 0) {
        snprintf(value, sizeof value, "MIG-%08x-1111-2222-3333-%012x", device->index, device->slice);
        return copy(value, out, room);
    }
    snprintf(value, sizeof value, "GPU-%08x-1111-2222-3333-444444444444", device->index);
    card_text(device, "uuid", value);
    return copy(value, out, room);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned room) {
    char value[LINE] = "NVIDIA Test Card";
    ANSWER_IF_OK(device, 0);
    card_text(device, "name", value);
    return copy(value, out, room);
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

static struct memory_v2 memory(nvmlDevice_t device) {
    const unsigned long long mib = 1ULL << 20;
    struct memory_v2 m = {0};
    m.total = mib * (unsigned long long)card_number(device, "total_mib", 81920);
    m.used = mib * (unsigned long long)card_number(device, "used_mib", 4);
    m.reserved = mib * (unsigned long long)card_number(device, "reserved_mib", 0);
    if (device->slice >= 0) {
        char size[LINE] = "0";
        card_word(device, "slices", (unsigned)device->slice, size);
        m.total = mib * strtoull(size, NULL, 10);
        m.used = m.reserved = 0;
    }
    m.free = m.total - m.used - m.reserved;
    return m;
}

/* The first version of the call counts the reserved memory as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *out) {
    struct memory_v2 m = memory(device);
    TELL(device, "memory");
    out->total = m.total;
    out->free = m.free;
    out->used = m.used + m.reserved;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned rates[2]) {
    TELL(device, "utilization");
    rates[0] = (unsigned)card_number(device, "utilization", 0);
    rates[1] = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    ANSWER_IF_OK(device, 1);
    *mode = (unsigned)card_number(device, "compute_mode", 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    TELL(device, "minor");
    *minor = (unsigned)card_number(device, "minor", device->index);
    return SUCCESS;
}

#ifndef NEW_DRIVER
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *degrees) {
    TELL(device, "temperature");
    if (sensor != 0) return INVALID_ARGUMENT;
    *degrees = (unsigned)card_number(device, "temperature", 30);
    return SUCCESS;
}
#else
struct temperature { unsigned version; int sensor, degrees; };

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature *out) {
    TELL(device, "temperature");
    if (out->version != (sizeof *out | 1u << 24) || out->sensor != 0) return INVALID_ARGUMENT;
    out->degrees = (int)card_number(device, "temperature", 30);
    return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    TELL(device, "power");
    *milliwatts = (unsigned)card_number(device, "power_mw", 70000);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    TELL(device, "limit");
    *milliwatts = (unsigned)card_number(device, "limit_mw", 700000);
    return SUCCESS;
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static struct pci address(nvmlDevice_t device) {
    char value[LINE];
    struct pci found = {0};
    found.bus = device->index + 1;
    snprintf(value, sizeof value, "00000000:%02X:00.0", found.bus);
    card_text(device, "pci", value);
    snprintf(found.bus_id, sizeof found.bus_id, "%.31s", value);
    return found;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci *out) {
    TELL(device, "pci");
    *out = address(device);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level) {
    unsigned low = one->index < other->index ? one->index : other->index;
    char key[LINE];
    ANSWER_IF_OK(one, 1);
    ANSWER_IF_OK(other, 1);
    snprintf(key, sizeof key, "topology.%u.%u", low, one->index + other->index - low);
    *level = (int)number(key, number("topology", 50));
    return *level < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* The end of an NVLink: a card's index, 's' or '-'. */
static nvmlReturn_t link_end(nvmlDevice_t device, unsigned link, char out[LINE]) {
    TELL(device, "links");
    if (!card_words(device, "links")) return NOT_SUPPORTED;
    return card_word(device, "links", link, out) ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    char end[LINE];
    nvmlReturn_t failed = link_end(device, link, end);
    if (!failed) *active = end[0] != '-';
    return failed;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                 struct pci *out) {
    char end[LINE];
    struct device remote = {0, -1};
    nvmlReturn_t failed = link_end(device, link, end);
    if (failed) return failed;
    if (end[0] == 's') {
        *out = (struct pci){.bus = 0xff, .bus_id = "00000000:FF:00.0"};
        return SUCCESS;
    }
    remote.index = (unsigned)strtoul(end, NULL, 10);
    *out = address(&remote);
    return SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int *type) {
    char end[LINE];
    nvmlReturn_t failed = link_end(device, link, end);
    if (!failed) *type = end[0] == 's' ? 2 : 0;
    return failed;
}

struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     struct process *out) {
    unsigned room = *count;
    TELL(device, "processes");
    *count = card_words(device, "processes");
    if (*count > room) return TOO_SMALL;
    for (unsigned n = 0; n < *count; n++) {
        char word[LINE], *colon;
        if (!card_word(device, "processes", n, word)) return INVALID_ARGUMENT;
        out[n].pid = (unsigned)strtoul(word, &colon, 10);
        out[n].bytes = *colon == ':' ? strtoull(colon + 1, NULL, 10) << 20 : ~0ULL;
        out[n].gpu_instance = out[n].compute_instance = ~0u;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ANSWER_IF_OK(device, 1);
    *count = card_number(device, "mig", -1) < 0 ? 0 : MAX_SLICES;
    return SUCCESS;
}

static struct device slices[MAX_DEVICES][MAX_SLICES];

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                 nvmlDevice_t *out) {
    ANSWER_IF_OK(device, 1);
    if (index >= MAX_SLICES) return INVALID_ARGUMENT;
    if (index >= card_words(device, "slices")) return NOT_FOUND;
    slices[device->index][index] = (struct device){device->index, (int)index};
    *out = &slices[device->index][index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *out) {
    unsigned version = out->version;
    TELL(device, "memory");
    if (version != (sizeof *out | 2u << 24)) return INVALID_ARGUMENT;
    *out = memory(device);
    out->version = version;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char value[LINE] = "9.0";
    TELL(device, "capability");
    card_text(device, "capability", value);
    return sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    long mode = card_number(device, "mig", -1);
    ANSWER_IF_OK(device, 1);
    if (mode < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)mode;
    return SUCCESS;
}
#endif
