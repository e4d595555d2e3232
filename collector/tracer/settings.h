/* What the environment may say. README.md explains each variable; a value that cannot be read leaves the default. */
#ifndef TRUELOAD_TRACER_SETTINGS_H
#define TRUELOAD_TRACER_SETTINGS_H

#include <stdint.h>

struct tracer_settings {
    const char *cupti_path, *log_path;
    uint64_t flush_nanoseconds;
    uint64_t lateness_nanoseconds;
    uint64_t hold_nanoseconds;
    uint64_t quiet_nanoseconds;
    uint64_t duty_on_nanoseconds, duty_off_nanoseconds;
    int graph_level;
};

struct tracer_settings settings_read(void);

#endif
