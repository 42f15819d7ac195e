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
 *     0.mig = 1                 0 or 1; left out, the card cannot be split (NOT_SUPPORTED)
 *     0.error = 15              nvmlReturn_t of every call about card 0
 *     0.error_after_name = 15   the same, but handle, UUID and name still answer
 *
 * Compiled with -DOLD_DRIVER it lacks the functions that drivers before 450 lack.
 * Struct layouts and codes: the NVML API reference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct device { unsigned index; } *nvmlDevice_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7 };
enum { MAX_DEVICES = 64, LINE = 256 };

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

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    nvmlReturn_t result = (nvmlReturn_t)number("init", SUCCESS);
    (void)flags;
    if (!result) users++;
    return result;
}

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
    devices[index].index = index;
    *device = &devices[index];
    return state(*device, 0);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned room) {
    char value[LINE];
    ANSWER_IF_OK(device, 0);
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
    m.free = m.total - m.used - m.reserved;
    return m;
}

/* The first version of the call counts the reserved memory as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *out) {
    struct memory_v2 m = memory(device);
    ANSWER_IF_OK(device, 1);
    out->total = m.total;
    out->free = m.free;
    out->used = m.used + m.reserved;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned rates[2]) {
    ANSWER_IF_OK(device, 1);
    rates[0] = (unsigned)card_number(device, "utilization", 0);
    rates[1] = 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned *mode) {
    ANSWER_IF_OK(device, 1);
    *mode = (unsigned)card_number(device, "compute_mode", 0);
    return SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *out) {
    unsigned version = out->version;
    ANSWER_IF_OK(device, 1);
    if (version != (sizeof *out | 2u << 24)) return INVALID_ARGUMENT;
    *out = memory(device);
    out->version = version;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    char value[LINE] = "9.0";
    ANSWER_IF_OK(device, 1);
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
