#include "settings.h"

#include <stdlib.h>

#define SECOND UINT64_C(1000000000)

/* Seconds with up to nine decimals, to nanoseconds; not strtod, which follows the application's locale. Leaves *text
 * behind the number. 0: no number. */
static int read_seconds(const char **text, uint64_t *nanoseconds)
{
    const char *at = *text;
    uint64_t whole = 0, unit = SECOND;
    if (*at < '0' || *at > '9')
        return 0;
    for (; *at >= '0' && *at <= '9' && whole < SECOND; at++)
        whole = whole * 10 + (uint64_t)(*at - '0');
    whole *= SECOND;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++)
            whole += (uint64_t)(*at - '0') * (unit /= 10);
    *text = at;
    *nanoseconds = whole;
    return 1;
}

static uint64_t seconds_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    uint64_t value;
    return text && read_seconds(&text, &value) && *text == '\0' && value > 0 ? value : otherwise;
}

/* "10/50": ten seconds on, fifty off. */
static void read_duty(struct tracer_settings *settings)
{
    const char *text = getenv("TRUELOAD_TRACER_DUTY_SECONDS");
    uint64_t on, off;
    if (!text || !read_seconds(&text, &on) || *text++ != '/' || !read_seconds(&text, &off) || *text != '\0' || on == 0)
        return;
    settings->duty_on_nanoseconds = on;
    settings->duty_off_nanoseconds = off;
}

struct tracer_settings settings_read(void)
{
    const char *graph_level = getenv("TRUELOAD_TRACER_GRAPH_LEVEL");
    struct tracer_settings settings = {
        .cupti_path = getenv("TRUELOAD_CUPTI_PATH"),
        .log_path = getenv("TRUELOAD_TRACER_LOG"),
        .flush_nanoseconds = seconds_of("TRUELOAD_TRACER_FLUSH_SECONDS", SECOND),
        .lateness_nanoseconds = seconds_of("TRUELOAD_TRACER_LATENESS_SECONDS", 2 * SECOND),
        .hold_nanoseconds = seconds_of("TRUELOAD_TRACER_HOLD_SECONDS", 60 * SECOND),
        .quiet_nanoseconds = seconds_of("TRUELOAD_TRACER_QUIET_SECONDS", 30 * SECOND),
        .graph_level = graph_level && graph_level[0] == '1' && graph_level[1] == '\0',
    };
    read_duty(&settings);
    return settings;
}
