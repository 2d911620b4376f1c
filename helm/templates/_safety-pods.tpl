{{/* Errors in the variables, volumes and mounts added to the pods of a part. Takes settings and name, such as gateway. Returns a JSON list. */}}
{{- define "merchant-gateway.additionProblems" -}}
{{- $problems := list -}}
{{- $name := .name -}}
{{- $variables := list -}}
{{- range .settings.extraEnv -}}
{{- if has .name (list "NODE_ENV" "HOSTNAME" "MERCHANT_GATEWAY_DATABASE_URL") -}}
{{- $problems = append $problems (printf "%s.extraEnv has %s, which the chart or Kubernetes sets: remove it" $name .name) -}}
{{- else if has .name $variables -}}
{{- $problems = append $problems (printf "%s.extraEnv has %s twice, and only one of them would apply: remove one" $name .name) -}}
{{- end -}}
{{- $variables = append $variables .name -}}
{{- end -}}
{{- $volumes := list -}}
{{- range .settings.extraVolumes -}}
{{- $volume := toString (default "" .name) -}}
{{- if regexMatch "^(config|var|tmp|tls|tor-exits|data|secret-.*)$" $volume -}}
{{- $problems = append $problems (printf "%s.extraVolumes has %s, a name that the chart uses: choose another name" $name $volume) -}}
{{- else if has $volume $volumes -}}
{{- $problems = append $problems (printf "%s.extraVolumes has %s twice: give each volume a unique name" $name $volume) -}}
{{- end -}}
{{- $volumes = append $volumes $volume -}}
{{- end -}}
{{- $mounts := list -}}
{{- range .settings.extraVolumeMounts -}}
{{- $volume := toString (default "" .name) -}}
{{- $path := clean (toString (default "" .mountPath)) -}}
{{- if not (has $volume $volumes) -}}
{{- $problems = append $problems (printf "%s.extraVolumeMounts mounts %s, which is not in %s.extraVolumes: add the volume" $name $volume $name) -}}
{{- end -}}
{{- if not (hasPrefix "/" $path) -}}
{{- $problems = append $problems (printf "%s.extraVolumeMounts has %s, which is not an absolute path" $name $path) -}}
{{- else if include "merchant-gateway.hidesOwn" $path -}}
{{- $problems = append $problems (printf "%s.extraVolumeMounts has %s, which would hide files of the chart or the image: mount it at another path" $name $path) -}}
{{- else if has $path $mounts -}}
{{- $problems = append $problems (printf "%s.extraVolumeMounts has %s twice: mount one of them at another path" $name $path) -}}
{{- end -}}
{{- $mounts = append $mounts $path -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* Whether a mount at this path would hide files of the chart or the image, or lie within a read-only directory of theirs. */}}
{{- define "merchant-gateway.hidesOwn" -}}
{{- $mount := printf "%s/" (trimSuffix "/" .) -}}
{{- $readOnly := list "/app/" "/etc/merchant-gateway/config/" "/etc/merchant-gateway/secrets/" "/etc/merchant-gateway/tls/" "/etc/merchant-gateway/tor-exits/" -}}
{{- $written := list "/var/lib/merchant-gateway/var/" "/var/lib/merchant-gateway/data/" "/tmp/" -}}
{{- range concat $readOnly $written -}}
{{- if or (hasPrefix $mount .) (and (has . $readOnly) (hasPrefix . $mount)) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a file of the gateways outlives their pods, because it is on a persistent extra volume. Takes path and settings. */}}
{{- define "merchant-gateway.outlivesPods" -}}
{{- $file := clean .path -}}
{{- $staying := list -}}
{{- range .settings.extraVolumes -}}
{{- if not (or (hasKey . "emptyDir") (hasKey . "ephemeral") (hasKey . "configMap") (hasKey . "secret") (hasKey . "projected")) -}}
{{- $staying = append $staying .name -}}
{{- end -}}
{{- end -}}
{{- range .settings.extraVolumeMounts -}}
{{- $isAround := hasPrefix (printf "%s/" (clean (toString .mountPath))) $file -}}
{{- if and $isAround (has .name $staying) (not .readOnly) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Errors for resource requests above their limits. Takes resources and name. Returns a JSON list. */}}
{{- define "merchant-gateway.resourceProblems" -}}
{{- $problems := list -}}
{{- $limits := default dict .resources.limits -}}
{{- range $what, $request := default dict .resources.requests -}}
{{- $limit := get $limits $what -}}
{{- if and $limit (gt (include "merchant-gateway.amountOf" $request | float64) (include "merchant-gateway.amountOf" $limit | float64)) -}}
{{- $problems = append $problems (printf "%s asks for %s of %s, above the limit of %s, so Kubernetes would reject the pod: raise the limit" $.name $request $what $limit) -}}
{{- end -}}
{{- end -}}
{{- $problems | toJson -}}
{{- end -}}

{{/* A Kubernetes quantity as a number. */}}
{{- define "merchant-gateway.amountOf" -}}
{{- $decimal := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 -}}
{{- $factors := merge $decimal (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[a-zA-Z]*$" .)) -}}
{{- end -}}
