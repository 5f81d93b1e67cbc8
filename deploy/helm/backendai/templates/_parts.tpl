{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: backendai
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "chosen" -}}
app.kubernetes.io/name: backendai
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "environment" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}

{{- define "claim" -}}
{{- $root := .root }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels: {{- include "labels" $root | nindent 4 }}
  annotations: {helm.sh/resource-policy: keep}
spec:
  accessModes: [{{ .mode | default "ReadWriteOnce" }}]
  {{- with .of.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ .of.size }}}}
{{- end }}

{{/* The token with which pods are created is in this container alone, and the portal's secrets are not. */}}
{{- define "agent" -}}
- name: agent
  image: {{ include "image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [sh, -c, 'BACKENDAI_JOIN_TOKEN=$(cat /join-token) exec python manage.py agent']
  env:
  - {name: BACKENDAI_AGENT_BACKEND, value: kubernetes}
  - {name: BACKENDAI_AGENT_NAME, value: {{ .Values.agent.name | quote }}}
  - {name: BACKENDAI_AGENT_DATA, value: /data}
  - {name: BACKENDAI_GATEWAY_PORT, value: "8090"}
  - {name: BACKENDAI_PORTAL_URL, value: "http://127.0.0.1:8080"}
  - {name: BACKENDAI_GATEWAY_HOST, value: "127.0.0.1"}
  - {name: BACKENDAI_GATEWAY_URL, value: "http://127.0.0.1:8090"}
  {{- if .Values.folders.enabled }}
  - {name: BACKENDAI_KUBERNETES_STORAGE, value: "local=claim:{{ .Values.folders.existingClaim | default (printf "%s-folders" .Release.Name) }}"}
  {{- end }}
  {{- include "environment" .Values.agent.settings | nindent 2 }}
  livenessProbe:
    exec: {command: [python, -m, backendai.ops.alive, agent]}
    initialDelaySeconds: 60
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 6
  resources: {{- toYaml .Values.agent.resources | nindent 4 }}
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  volumeMounts:
  - {name: data, mountPath: /data, subPath: agent}
  - {name: cluster-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  - {name: data, mountPath: /join-token, subPath: portal/local-join-token, readOnly: true}
{{- end }}

{{- define "portal" -}}
{{- $values := .root.Values }}
{{- $release := .root.Release.Name }}
- name: {{ .name }}
  image: {{ include "image" .root }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: {{ toJson .command }}
  env:
  - {name: BACKENDAI_DATA, value: /data}
  - {name: BACKENDAI_HOST, value: "0.0.0.0"}
  - {name: BACKENDAI_PORT, value: "8080"}
  - {name: BACKENDAI_APPS_PORT, value: "8081"}
  - {name: BACKENDAI_SSH_PORT, value: "2200"}
  - {name: BACKENDAI_ADMIN_EMAIL, value: {{ $values.portal.adminEmail | quote }}}
  - {name: BACKENDAI_ADMIN_PASSWORD, valueFrom: {secretKeyRef: {name: {{ $release }}, key: admin-password}}}
  {{- if $values.postgresql.enabled }}
  - {name: POSTGRES_PASSWORD, valueFrom: {secretKeyRef: {name: {{ $release }}, key: postgres-password}}}
  - {name: DATABASE_URL, value: "postgres://portal:$(POSTGRES_PASSWORD)@{{ $release }}-postgresql:5432/portal"}
  {{- end }}
  {{- include "environment" $values.portal.settings | nindent 2 }}
  {{- with $values.portal.settingsSecret }}
  envFrom:
  - secretRef: {name: {{ . }}}
  {{- end }}
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  volumeMounts:
  - {name: data, mountPath: /data, subPath: portal}
  {{- if $values.folders.enabled }}
  - {name: folders, mountPath: /data/folders}
  {{- end }}
{{- end }}
