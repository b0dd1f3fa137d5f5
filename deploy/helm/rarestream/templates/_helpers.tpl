{{/* Names, labels and what the templates share. */}}

{{- define "rarestream.fullname" -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name)) -}}
{{- $name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "rarestream.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rarestream.labels" -}}
{{ include "rarestream.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "rarestream.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "rarestream.scheme" -}}
{{ ternary "https" "http" (ne .Values.tls.existingSecret "") }}
{{- end }}

{{/* Of a container: nothing that it does not need. */}}
{{- define "rarestream.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What the schema cannot say in words that help. Values that contradict each other end the rendering here. */}}
{{- define "rarestream.check" -}}
{{- $keys := or .Values.keys.existingSecret .Values.keys.file -}}
{{- if and .Values.insecure $keys }}
{{- fail "insecure: true serves without keys, and keys are given: leave one of them out" }}
{{- else if not (or .Values.insecure $keys) }}
{{- fail "no API keys: set keys.existingSecret or keys.file; insecure: true serves everybody without a key" }}
{{- end }}
{{- if and .Values.keys.existingSecret .Values.keys.file }}
{{- fail "keys.existingSecret and keys.file: give one of them" }}
{{- end }}
{{- $stores := list .Values.store.existingSecret .Values.store.url (ternary "redis" "" .Values.redis.enabled) | compact | len -}}
{{- if eq $stores 0 }}
{{- fail "no store: give store.existingSecret or store.url, or set redis.enabled: true to try it out" }}
{{- else if gt $stores 1 }}
{{- fail "store.existingSecret, store.url and redis.enabled: give one of them" }}
{{- end }}
{{- if and .Values.redis.enabled (not .Values.redis.password) }}
{{- fail "redis.enabled wants redis.password: openssl rand -hex 32" }}
{{- end }}
{{- range $name := list "STORE" "HOST" "PORT" "KEYS" "INSECURE" "TLS_CERTIFICATE" "TLS_KEY" "ADVERTISE" }}
{{- if hasKey $.Values.settings $name }}
{{- fail (printf "settings.%s is set by the chart itself" $name) }}
{{- end }}
{{- end }}
{{- if and .Values.tls.existingSecret (hasKey .Values.settings "REPLICATION") }}
{{- fail "settings.REPLICATION with tls: nodes call each other by pod address, which no certificate names; end TLS at an ingress" }}
{{- end }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add (int .Values.preStopSeconds) 30 | int) }}
{{- fail "terminationGracePeriodSeconds is less than preStopSeconds and thirty more: a node needs them to end in order" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- fail "autoscaling.maxReplicas is less than autoscaling.minReplicas" }}
{{- end }}
{{- end }}
