#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *log_path;

void log_open(const char *path) { log_path = path; }

/* Opened for each line, of which there are a handful in a process's life: no descriptor lives on in the application. */
void log_line(const char *format, ...)
{
    if (!log_path || !*log_path)
        return;
    int saved = errno, file = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char line[512];
    int used = snprintf(line, sizeof line, "%lld trueload-tracer[%d]: ", (long long)time(NULL), (int)getpid());
    va_list values;
    va_start(values, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, values);
    va_end(values);
    used += more < (int)sizeof line - used - 1 ? more : (int)sizeof line - used - 2;
    line[used++] = '\n';
    if (file >= 0) {
        if (write(file, line, (size_t)used) < 0)
            errno = saved;
        close(file);
    }
    errno = saved;
}
