{{/*
The pod template of all parts. Only this template sets the rights of a pod.
Takes root, part, component, settings (the part's values), args, graceSeconds, configMap and optionally environment,
preStopSeconds, ports, probes, volumes, mounts, isJob and isHook. With isHook the pod has no secret files.
*/}}
{{- define "merchant-gateway.pod" -}}
{{- $secrets := dict -}}
{{- if not .isHook -}}
{{- $secrets = include "merchant-gateway.secretsOfPart" . | fromJson -}}
{{- end -}}
metadata:
  labels:
    {{- include "merchant-gateway.labels" (merge (dict "labels" .settings.podLabels) .) | nindent 4 }}
  annotations:
    {{- $own := dict "merchant-gateway/config" (include "merchant-gateway.config" . | sha256sum) }}
    {{- $hasMadeCa := eq (dig "registryCa" "secret" "" $secrets) (include "merchant-gateway.registryTlsSecret" .root) }}
    {{- if and $hasMadeCa (include "merchant-gateway.makesRegistryTls" .root) }}
    {{- /* A pod reads the CA only at start, so a new one restarts it. */}}
    {{- $_ := set $own "merchant-gateway/renew-at" (include "merchant-gateway.registryTlsRenewAt" .root) }}
    {{- end }}
    {{- merge $own .settings.podAnnotations .root.Values.commonAnnotations | toYaml | nindent 4 }}
spec:
  {{- /* A hook runs before the service account of the release exists. */}}
  serviceAccountName: {{ ternary "default" (include "merchant-gateway.serviceAccountName" .root) (default false .isHook) }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or .isJob .isHook }}
  restartPolicy: Never
  {{- end }}
  terminationGracePeriodSeconds: {{ .graceSeconds }}
  securityContext:
    {{- include "merchant-gateway.podSecurityContext" .settings | fromJson | toYaml | nindent 4 }}
  {{- with .settings.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .settings.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  {{- with .settings.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.dnsPolicy }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with .settings.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .probes }}
  {{- with .settings.readinessGates }}
  readinessGates:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with .settings.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .settings.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .settings.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if kindIs "invalid" .settings.topologySpreadConstraints }}
    {{- $component := dict "root" .root "component" .component }}
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "merchant-gateway.selectorLabels" $component | nindent 10 }}
    {{- end }}
    {{- else }}
    {{- toYaml .settings.topologySpreadConstraints | nindent 4 }}
    {{- end }}
  {{- if or .probes .isMigration }}
  {{- with .settings.initContainers }}
  initContainers:
    {{- range . }}
    - {{ include "merchant-gateway.addedContainer" . | fromJson | toYaml | indent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- end }}
  containers:
    - name: {{ .part }}
      image: {{ include "merchant-gateway.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      workingDir: /var/lib/merchant-gateway
      securityContext:
        {{- include "merchant-gateway.securityContext" .settings | fromJson | toYaml | nindent 8 }}
      {{- with .settings.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      env:
        - name: NODE_ENV
          value: production
        {{- if and (has .part (list "registry" "services")) (include "merchant-gateway.hasPostgres" .) }}
        {{- $database := index .root.Values.secrets (printf "%sDatabase" .part) }}
        {{- if and .isMigration (eq .part "registry") .root.Values.migrations.registryOwner.existingSecret }}
        {{- $database = .root.Values.migrations.registryOwner }}
        {{- end }}
        - name: MERCHANT_GATEWAY_DATABASE_URL
          valueFrom:
            secretKeyRef:
              name: {{ $database.existingSecret }}
              key: {{ $database.key }}
        {{- end }}
        {{- with .settings.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .ports }}
      ports:
        {{- range $name, $port := . }}
        - name: {{ $name }}
          containerPort: {{ $port }}
        {{- end }}
      {{- end }}
      {{- with .probes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- if .probes }}
      {{- $lifecycle := .settings.lifecycle }}
      {{- if and .preStopSeconds (not $lifecycle.preStop) }}
      {{- /* node instead of sleep: a minimal image has no sleep command. */}}
      {{- $wait := printf "setTimeout(() => {}, %d)" (mul .preStopSeconds 1000) }}
      {{- $lifecycle = merge (dict "preStop" (dict "exec" (dict "command" (list "node" "-e" $wait)))) $lifecycle }}
      {{- end }}
      {{- with $lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      resources:
        {{- toYaml .settings.resources | nindent 8 }}
      volumeMounts:
        - name: config
          mountPath: /etc/merchant-gateway/config
          readOnly: true
        - name: var
          mountPath: /var/lib/merchant-gateway/var
        - name: tmp
          mountPath: /tmp
        {{- range $name, $secret := $secrets }}
        - name: secret-{{ kebabcase $name }}
          mountPath: /etc/merchant-gateway/secrets/{{ $name }}
          readOnly: true
        {{- end }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with .settings.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- if .probes }}
    {{- range .settings.extraContainers }}
    - {{ include "merchant-gateway.addedContainer" . | fromJson | toYaml | indent 6 | trim }}
    {{- end }}
    {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ .configMap }} }
    # The snapshot of the Tor exit list, and temporary files.
    - name: var
      emptyDir: { sizeLimit: 256Mi }
    - name: tmp
      emptyDir: { sizeLimit: 64Mi }
    {{- range $name, $secret := $secrets }}
    - name: secret-{{ kebabcase $name }}
      secret:
        secretName: {{ $secret.secret }}
        defaultMode: 0440
        items:
          - key: {{ $secret.key }}
            path: {{ $secret.key }}
    {{- end }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .settings.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* The security contexts of a part's pods and of its container. Takes the part's values. Returns JSON. */}}
{{- define "merchant-gateway.podSecurityContext" -}}
{{- $user := dict "runAsNonRoot" true "runAsUser" 1000 "runAsGroup" 1000 -}}
{{- $files := dict "fsGroup" 1000 "fsGroupChangePolicy" "OnRootMismatch" -}}
{{- $base := merge $user $files (dict "seccompProfile" (dict "type" "RuntimeDefault")) -}}
{{- include "merchant-gateway.above" (dict "base" $base "above" .podSecurityContext) -}}
{{- end -}}

{{- define "merchant-gateway.securityContext" -}}
{{- $base := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "merchant-gateway.above" (dict "base" $base "above" .securityContext) -}}
{{- end -}}

{{/* A container that the operator added. By default it has no capabilities. Returns JSON. */}}
{{- define "merchant-gateway.addedContainer" -}}
{{- $base := dict "allowPrivilegeEscalation" false "capabilities" (dict "drop" (list "ALL")) -}}
{{- $context := include "merchant-gateway.above" (dict "base" $base "above" (default dict .securityContext)) | fromJson -}}
{{- mergeOverwrite (deepCopy .) (dict "securityContext" $context) | toJson -}}
{{- end -}}

{{/* The probes of a part, with the overrides in its values. Takes probes and settings. Returns JSON. */}}
{{- define "merchant-gateway.probes" -}}
{{- $probes := dict -}}
{{- range $name, $probe := .probes -}}
{{- $changes := get $.settings.probes (trimSuffix "Probe" $name) -}}
{{- $_ := set $probes $name (include "merchant-gateway.above" (dict "base" $probe "above" $changes) | fromJson) -}}
{{- end -}}
{{- $probes | toJson -}}
{{- end -}}

{{/* A PodDisruptionBudget. Takes root, component, name and budget. */}}
{{- define "merchant-gateway.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "merchant-gateway.metadata" . | nindent 2 }}
spec:
  {{- if not (kindIs "invalid" .budget.minAvailable) }}
  minAvailable: {{ .budget.minAvailable }}
  {{- else }}
  maxUnavailable: {{ .budget.maxUnavailable }}
  {{- end }}
  # A pod that is not ready serves no requests, so it must not block the drain of a node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "merchant-gateway.selectorLabels" . | nindent 6 }}
{{- end -}}
