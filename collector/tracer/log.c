#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char log_path[PATH_MAX];

/* Kept as a copy: programs that set their own title (setproctitle) write over the environment they were started with. A
 * path that does not fit is none. */
void log_open(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    if (length < sizeof log_path)
        memcpy(log_path, path ? path : "", length);
}

/* Opened for each line, of which there are a handful in a process's life: no descriptor lives on in the application. */
void log_line(const char *format, ...)
{
    if (!*log_path)
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
