{{/*
The template of a pod of any part: the one place that says what a pod may do.
Takes root, part, component, settings (the part's values), args, graceSeconds, configMap and, if need be, environment,
preStopSeconds, ports, probes, volumes, mounts, isJob, isHook: then it has no secret files.
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
    {{- $ofConfig := dict "merchant-gateway/config" (include "merchant-gateway.config" . | sha256sum) }}
    {{- merge $ofConfig .settings.podAnnotations .root.Values.commonAnnotations | toYaml | nindent 4 }}
spec:
  {{- /* A hook runs before there is an account of the release. */}}
  serviceAccountName: {{ ternary "default" (include "merchant-gateway.fullname" .root) (default false .isHook) }}
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
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
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
  containers:
    - name: {{ .part }}
      image: {{ include "merchant-gateway.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args:
        {{- toYaml .args | nindent 8 }}
      workingDir: /var/lib/merchant-gateway
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      env:
        - name: NODE_ENV
          value: production
        {{- if and (has .part (list "registry" "services")) (include "merchant-gateway.hasPostgres" .) }}
        {{- $database := index .root.Values.secrets (printf "%sDatabase" .part) }}
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
      {{- with .preStopSeconds }}
      lifecycle:
        preStop:
          exec:
            # Not sleep: an image without a shell's tools has none.
            command: [node, -e, 'setTimeout(() => {}, {{ mul . 1000 }})']
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
  volumes:
    - name: config
      configMap: { name: {{ .configMap }} }
    # A snapshot, and files that are being written.
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
  # A pod that is not ready serves nobody: it may not hold up a drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "merchant-gateway.selectorLabels" . | nindent 6 }}
{{- end -}}
