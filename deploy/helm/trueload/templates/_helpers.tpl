{{- define "trueload.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "trueload.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of an object; (dict "root" $ "component" "server"), component empty for what is of all parts. */}}
{{- define "trueload.labels" -}}
{{ include "trueload.selector" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: trueload
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "trueload.image" -}}
{{- $image := (index .root.Values .part).image -}}
{{- $registry := default $image.registry .root.Values.global.imageRegistry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end }}
{{- end -}}

{{- define "trueload.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Pod Security "restricted": for every part but the agent. */}}
{{- define "trueload.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}
{{- define "trueload.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "trueload.placing" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "trueload.tokenSecret" -}}
{{ default (printf "%s-tokens" (include "trueload.fullname" .)) .Values.tokens.existingSecret }}
{{- end -}}
{{- define "trueload.tlsSecret" -}}
{{ ternary .Values.tls.existingSecret (printf "%s-tls" (include "trueload.fullname" .)) (eq .Values.tls.source "existing") }}
{{- end -}}
{{- define "trueload.serverHost" -}}
{{ include "trueload.fullname" . }}-server.{{ .Release.Namespace }}.svc
{{- end -}}
{{- define "trueload.serverScheme" -}}
{{ ternary "http" "https" (eq .Values.tls.source "none") }}
{{- end -}}
{{- define "trueload.serverUrl" -}}
{{ include "trueload.serverScheme" . }}://{{ include "trueload.serverHost" . }}:8411
{{- end -}}

{{/* Variables, mounts and volumes that all parts have. Variables of Services are off everywhere: TRUELOAD_… of a
Service would be read as settings. */}}
{{- define "trueload.env" -}}
- {name: TRUELOAD_CONFIG, value: /etc/trueload/trueload.toml}
- {name: HOME, value: /tmp}
{{- end -}}
{{- define "trueload.mounts" -}}
- {name: config, mountPath: /etc/trueload, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}
{{- define "trueload.volumes" -}}
- name: config
  configMap: {name: {{ include "trueload.fullname" . }}}
- name: tmp
  emptyDir: {sizeLimit: 1Gi}
{{- end -}}

{{/* One file of the tokens' Secret; (dict "root" $ "keys" (list "operator-token")). */}}
{{- define "trueload.tokenVolume" -}}
- name: tokens
  secret:
    secretName: {{ include "trueload.tokenSecret" .root }}
    defaultMode: 0440
    items:
    {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
    {{- end }}
{{- end -}}
{{- define "trueload.caVolume" -}}
{{- if ne .Values.tls.source "none" }}
- name: ca
  secret:
    secretName: {{ include "trueload.tlsSecret" . }}
    defaultMode: 0444
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* Pages and reports speak to others too, so they trust the system's authorities and the server's: one file of both. */}}
{{- define "trueload.bundleInit" -}}
- name: authorities
  image: {{ include "trueload.image" . }}
  imagePullPolicy: {{ (index .root.Values .part).image.pullPolicy }}
  command: [sh, -ec, "cat /etc/ssl/certs/ca-certificates.crt /ca/ca.crt > /authorities/all.crt"]
  securityContext: {{- include "trueload.security" . | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: ca, mountPath: /ca, readOnly: true}
    - {name: authorities, mountPath: /authorities}
{{- end -}}

{{/* What cannot be, said in one line each. */}}
{{- define "trueload.check" -}}
{{- if and (eq .Values.tls.source "existing") (not .Values.tls.existingSecret) }}
{{- fail "tls.source existing: name the Secret in tls.existingSecret" }}
{{- end }}
{{- if and (eq .Values.tls.source "certManager") (not .Values.tls.certManager.issuerName) }}
{{- fail "tls.source certManager: name the issuer in tls.certManager.issuerName" }}
{{- end }}
{{- if .Values.web.enabled }}
{{- if and (ne .Values.web.signIn.mode "none") (not .Values.web.signIn.existingSecret) }}
{{- fail (printf "web.signIn.mode %s: name the Secret in web.signIn.existingSecret" .Values.web.signIn.mode) }}
{{- end }}
{{- if and .Values.web.ingress.enabled (eq .Values.web.signIn.mode "none") }}
{{- fail "web.ingress.enabled: everybody would see everything; set web.signIn.mode to oidc or proxy" }}
{{- end }}
{{- if and .Values.web.ingress.enabled (not .Values.web.ingress.host) }}
{{- fail "web.ingress.enabled: say under which name in web.ingress.host" }}
{{- end }}
{{- if and (gt (int .Values.web.replicas) 1) (ne .Values.web.signIn.mode "proxy") }}
{{- fail "web.replicas above 1 needs web.signIn.mode proxy: a sign-in by OIDC ends in the process that began it" }}
{{- end }}
{{- end }}
{{- if .Values.report.enabled }}
{{- $mail := default dict .Values.settings.mail }}
{{- range $key := list "smtp_host" "sender" "operators" }}
{{- if not (index $mail $key) }}
{{- fail (printf "report.enabled: settings.mail.%s is missing, so no report could be sent" $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.server.serviceMonitor (not .Values.metrics.server.existingSecret) }}
{{- fail "metrics.server.serviceMonitor: name the Secret with a metrics token in metrics.server.existingSecret" }}
{{- end }}
{{- end -}}
